"""What is never shown of a log: secrets, people, places. Applied to every piece of a log that is printed, kept or reported."""

from __future__ import annotations

import re

MAX_TEXT = 20_000

# (what it looks like, what stands instead). Each reads its text once: no repeat inside a repeat.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"-----BEGIN [A-Z ]{3,40}-----[^-]{0,8000}(?:-----END [A-Z ]{3,40}-----)?", "[key]"),
        (r"\b(?:hf|api_org)_[A-Za-z0-9]{6,200}", "[token]"),
        (r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,300}", "[token]"),
        (r"\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|npm|nvapi|dckr_pat|wandb_v1)[_-][A-Za-z0-9_-]{8,300}", "[token]"),
        (r"\b(?:AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,80}", "[token]"),
        (r"\beyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{5,4000}(?:\.[A-Za-z0-9_-]{0,2000})?", "[token]"),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,4000}", r"\1 [token]"),
        (r"(?i)((?:api[_-]?key|apikey|access[_-]?key|secret(?:[_-]?key)?|auth[_-]?token|hf[_-]?token|hub[_-]?token|password|passwd|authorization|"
         r"credential|private[_-]?key|session[_-]?id|cookie)['\"]?\s{0,3}[:=]\s{0,3})(?!None\b|null\b|\[token)(?:\[\s{0,3})?['\"]?[^\s'\",;)\]}]{1,4000}",
         r"\1[token]"),
        (r"(?i)(--(?:api-key|hf-token|token|password|secret)[ =])[^\s'\"]{1,4000}", r"\1[token]"),
        (r"\b[A-Fa-f0-9]{40,512}\b", "[hex]"),
        (r"\b([a-z][a-z0-9+]{1,12}://)(?:[^\s/'\"<>@]{0,300}@)?(?:\[[0-9A-Fa-f:.%]{2,60}\]|[^\s/'\"<>,;:()\[\]{}]{1,300})(?::\d{1,5})?", r"\1[host]"),
        (r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}", "[mail]"),
        (r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)(?::\d{1,5})?", "[address]"),
        (r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])", "[address]"),
        (r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){1,6}:(?:[0-9A-Fa-f]{1,4})?(?::[0-9A-Fa-f]{1,4}){0,5}(?![\w:])", "[address]"),
        (r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])", "[address]"),
        (r"(/(?:home|Users|users|var/home|export/home|data/home|mnt/home)/)[^/\s'\",;:()\[\]{}]{1,200}", r"\1[user]"),
        (r"(?i)([A-Z]:\\{1,2}Users\\{1,2})[^\\\s'\",;()\[\]{}]{1,200}", r"\1[user]"),
        (r"(/(?:mnt|scratch|work|data|gpfs|lustre|nfs|storage|workspace|fsx|root|opt|srv|tmp|var|media|Volumes)/)[^\s'\",;)\]}]{1,400}/", r"\1[path]/"),
        (r"(?i)\b((?:hostname|host_name|host|node_ip|node_name|nodename|master_addr|server_name|ip|user|username|login)['\"]?\s{0,3}[:=]\s{0,3}['\"]?)"
         r"(?!None\b|null\b|\[)[A-Za-z0-9][\w.@-]{0,250}", r"\1[host]"),
        (r"(?i)(--(?:host|master-addr|dist-init-addr|node-ip|hostname)[ =])[^\s'\"]{1,300}", r"\1[host]"),
        (r"\b(?:ip-\d{1,3}(?:-\d{1,3}){3}|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,5}\.(?:internal|local|lan|corp|intra|cluster|svc|compute)\b)"
         r"(?:\.[A-Za-z0-9-]{1,63}){0,6}", "[host]"),
        (r"^([a-z][\w-]{1,31})@[A-Za-z0-9][\w.-]{0,120}:", "[user]@[host]:"),
    )
)  # fmt: skip


def masked(text: str) -> str:
    """`text` with tokens, keys, mail addresses, hosts, IP addresses, user names and private paths replaced by what they are in brackets.

    >>> masked("curl -H 'Authorization: Bearer abcdef123' http://me:pw@gpu07.lab:8000 /home/ann/m")
    "curl -H 'Authorization: [token] [token]' http://[host] /home/[user]/m"
    """
    out = text[:MAX_TEXT]
    for pattern, instead in _RULES:
        out = pattern.sub(instead, out)
    return out
