"""What a log must never show again: secrets, people, places. Each rule with what it leaves alone."""

from __future__ import annotations

import json

import pytest

from planner.enginelogs import masked, reconcile

SECRETS = (  # (text, the piece that must be gone)
    ("token hf_abcdefghijklmnopqrstuvwxyz", "abcdefghij"),
    ("OPENAI sk-proj-abcdefghijklmnop", "abcdefghij"),
    ("Authorization: Bearer abc.def-ghi_jkl", "abc.def"),
    ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("'api_key': 'very-secret-value'", "very-secret"),
    ("--api-key very-secret-value --port 1", "very-secret"),
    ("api_key=['very-secret-value']", "very-secret"),
    ("HF_TOKEN=very-secret-value", "very-secret"),
    ("password: hunter2!", "hunter2"),
    ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGH"),
    ("ghp_abcdefghijklmnopqrst", "abcdefgh"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJ", "hbGciOi"),
    ("mail to ann.example@mail.example.org now", "ann.example"),
    ("http://ann:pw@gpu07.example.org:8000/v1", "ann"),
    ("http://ann:pw@gpu07.example.org:8000/v1", "gpu07"),
    ("tcp://10.20.30.40:29500", "10.20.30.40"),
    ("listening on 192.168.1.17:8000", "192.168"),
    ("(RayWorkerWrapper pid=12, ip=10.1.2.3)", "10.1.2.3"),
    ("peer fe80::1ff:fe23:4567:890a up", "fe23"),
    ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", "8a2e"),
    ("eth0 00:1a:2b:3c:4d:5e", "2b:3c"),
    ("/home/annsmith/models/llama", "annsmith"),
    ("/Users/annsmith/models", "annsmith"),
    ("C:\\Users\\annsmith\\models", "annsmith"),
    ("/mnt/projects/secretproject/model", "secretproject"),
    ("host='gpu07.lab'", "gpu07"),
    ("--host gpu07", "gpu07"),
    ("node ip-10-0-3-17.ec2.internal joined", "ip-10-0-3-17"),
    ("worker-3.gpu.svc.cluster.local up", "worker-3"),
    ("annsmith@gpu07:~$ vllm serve", "annsmith"),
    ("user=annsmith", "annsmith"),
)
HARMLESS = (
    "GPU KV cache size: 442,528 tokens", "meta-llama/Llama-3.1-8B", "vllm 0.19.0", "[kv_cache_utils.py:1319]", "10:00:05", "host=None", "api_key=None",
    "max_num_batched_tokens=8192", "Free memory on device (78.6/79.19 GiB)", "16:32:05.120", "model='org/model-7b'", "K (q8_0):   51.00 MiB", "token_id=5",
)  # fmt: skip


@pytest.mark.parametrize("case", SECRETS, ids=lambda c: c[0][:30])
def test_secrets_people_and_places_are_gone(case: tuple[str, str]) -> None:
    assert case[1] not in masked(case[0])
    assert "[" in masked(case[0])


@pytest.mark.parametrize("text", HARMLESS)
def test_figures_and_model_names_stay(text: str) -> None:
    assert masked(text) == text


def test_masking_twice_changes_nothing_more() -> None:
    for text, _ in SECRETS:
        assert masked(masked(text)) == masked(text), text


def test_nothing_secret_leaves_a_reconciled_log() -> None:
    """A log full of what must not be shown, beside figures and inside flags and refusals."""
    text = "\n".join(secret for secret, _ in SECRETS)
    text += "\nINFO non-default args: {'model': '/home/annsmith/secretmodel', 'api_key': ['very-secret-value'], 'max_model_len': 8192, 'host': 'gpu07.lab'}"
    text += "\nINFO x Available KV cache memory: 19.84 GiB http://ann:pw@gpu07.example.org\nINFO GPU KV cache size: 324,976 tokens"
    out = json.dumps(reconcile(text).to_json())
    assert "324976" in out
    for _, secret in SECRETS:
        assert secret not in out, secret
