"""English words that stand inside other texts: names of kinds, of amounts, of parts. An argument `messages.Word` becomes one of them."""

TEXT: dict[str, str] = {
    "word.complete": "complete",
    "word.incomplete": "incomplete",
    "word.unknown": "unknown",
    "word.bytes": "{bytes} bytes",
    "word.row": "row {row}",
    "word.layers": "layers",
    "word.window": "window",
    "word.chunk": "chunk",
    # one element of a cache in a formula
    "word.element": "{size} bytes",
    "word.element.one": "{size} byte",
    "word.element.scaled": "{size} bytes (+ {scale} B scale)",
    "word.element.scaled.one": "{size} byte (+ {scale} B scale)",
    # what a list of a config holds
    "word.type.int": "whole-number",
    "word.type.bool": "true or false",
    "word.type.str": "text",
    # how a figure of the ledger is known
    "word.known.measured": "measured",
    "word.known.documented": "documented",
    "word.known.derived": "derived",
    "word.known.assumed": "assumed",
    # what a note is
    "word.level.info": "info",
    "word.level.derived": "derived",
    "word.level.assumed": "assumed",
    "word.level.warning": "warning",
    # what a probe is busy with
    "word.phase.start": "start",
    "word.phase.plan": "plan",
    "word.phase.proof": "proof",
    "word.phase.weights": "weights",
    "word.phase.prefill": "prefill",
    "word.phase.decode": "decode",
    # times: how prompts are read, what is not counted, which figure of a device is missing
    "word.prefill.chunked": "chunked",
    "word.prefill.whole": "whole",
    "word.times.speculation": "speculation",
    "word.times.beams": "beams",
    "word.times.samples": "samples",
    "word.times.images": "images",
    "word.times.kv_offload": "the offloaded KV cache",
    "word.times.n_gpu_layers": "layers left on the host",
    "word.device.bandwidth_bytes_per_s": "the memory bandwidth",
    "word.device.flops_per_s": "the peak of a usable number format",
    # what a rule's cache is called where an engine has none
    "word.cache.compressed": "compressed",
    "word.cache.state": "state {mechanism}",
    "word.cache.ratio": "1/{ratio}",
    # why transformers' model code is not run over the probe's pages
    "word.injected.state": "layer {layer} keeps a {name} state",
    "word.injected.states": "layer {layer} keeps several states",
    "word.injected.layer": "layer {layer} is not in its plan",
}
