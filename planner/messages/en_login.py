"""English texts of signing in, where whoever runs the server set it up."""

TEXT: dict[str, str] = {
    "page.login.in": "Sign in",
    "page.login.with": "With {name}",
    "page.login.out": "Sign out",
    "page.login.as": "Signed in as {name}.",
    "page.login.or": "Or sign in: the history then belongs to your login, in every browser. The page begins anew with what its address holds; uploads and edited layers go: download the plan first.",
    "error.login_library": "Signing in is set up on this server, but the library for it is not installed.",
    "error.login_library.hint": 'Whoever runs the server installs it: pip install "streamlit[auth]". Everything else works meanwhile.',
    "error.login_secret": "Signing in is switched off: {field} is missing, or so short that it could be guessed.",
    "error.login_secret.hint": "Whoever runs the server gives {field} in the section [auth] of secrets.toml {least} random characters or more.",
    "error.login_settings": "Signing in is not set up completely on this server ({field} of secrets.toml).",
    "error.login_settings.hint": "Whoever runs the server finds the keys it needs in docs/hosting.md; the log names the one that is missing.",
}
