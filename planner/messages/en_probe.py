"""English texts of the probe."""

TEXT: dict[str, str] = {
    # -- errors
    "error.probe_kind": "This probe version cannot run a cache of kind {kind} (layer {layer}).",
    "error.probe_kind.hint": "It runs full, sliding and chunked attention and MLA. The plan itself covers this model; only the "
        "measurement does not.",
    "error.probe_several_caches": "This probe version cannot run a layer with {count} caches (layer {layer}).",
    "error.probe_several_caches.hint": "It runs layers with one attention cache each. The plan itself covers this model.",
    "error.probe_shape": "Layer {layer} keeps rows of {rows} but attends with {attention}: the probe cannot run the one over the other.",
    "error.probe_shape.hint": "Correct the layer in the layer editor, or report the model: reader and cache disagree.",
    "error.probe_no_cache": "None of the chosen layers keeps a cache: there is nothing to measure.",
    "error.probe_no_cache.hint": "Run more layers.",
    "error.probe_kv_dtype": "This probe version cannot store the KV cache as {value}.",
    "error.probe_kv_dtype.hint": "Choose one of {known}. Formats with scales beside the rows can be planned but not yet measured.",
    "error.probe_device": "The device {value} cannot be used: {reason}.",
    "error.probe_device.hint": "Choose auto to take what is there, or cpu.",
    "error.probe_memory_short": "The probe needs {needed} bytes for a single layer and may use {available}.",
    "error.probe_memory_short.hint": "Lower batch, prompt or block size, or raise the memory cap.",
    "error.probe_memory": "An allocation was refused while the probe was busy with {where}: {reason}.",
    "error.probe_memory.hint": "Lower batch, prompt or the number of layers, or raise the memory cap. The application is not affected.",
    "error.probe_time": "The probe was stopped after its time limit of {limit} s, while busy with {where}.",
    "error.probe_time.hint": "Lower batch, prompt, output or the number of layers, or raise the time limit.",
    "error.probe_died": "The probe's process ended early ({reason}) while busy with {where}.",
    "error.probe_died.hint": "The application is not affected. A smaller set-up may pass; the log below says what the process wrote last.",
    "error.probe_fault": "The probe failed: {reason}.",
    "error.probe_fault.hint": "This is a fault of the probe. Please report it together with the log.",
    "error.probe_job": "The probe did not understand its job: {reason}.",
    "error.probe_job.hint": "Give a model as for the planner's commands, or a config.json on standard input with the source -.",
    # -- notes
    "note.probe_random_weights": "Weights are random and the decoder is the probe's own: shapes and bytes are the model's, its answers "
        "are not.",
    "note.probe_skeleton": "Vocabulary cut to {vocab} of {vocab_total} and feed-forward width to {width} of {width_total}: the times are those of the "
        "attention and a thin rest, not the model's. Attention shapes and KV bytes per layer are exact.",
    "note.probe_layers_cut": "{run} of {total} layers run: memory or time here does not allow more. KV bytes are those of the layers "
        "that ran.",
    "note.probe_layers_asked": "{run} of {total} layers run, as asked for. KV bytes are those of the layers that ran.",
    "note.probe_experts_dense": "Experts run as one dense layer as wide as what a token activates ({width}): its time is a stand-in.",
    "note.probe_compute_dtype": "Products run in {compute} and the cache is stored in {kv}: half-width products are slower on this "
        "processor.",
    "note.probe_fp8_unscaled": "fp8 rows are stored with the scale 1, one byte a number; numbers beyond the range are cut to it.",
    "note.probe_proof_same_run": "Logits were checked in the timed run itself, in float32.",
    "note.probe_proof_own_run": "Logits were checked in a run of their own: float32, {layers} layers, {batch} sequences of {prompt} + "
        "{output} tokens.",
    "note.probe_proof_limit": "In the check, windows and chunks are cut to {limit} tokens so that they slide within it.",
    "note.probe_proof_failed": "The logits differ from full recomputation by {error}, more than {tolerance}: do not trust this run.",
    "note.probe_prefill_transient": "A {kind} layer holds all blocks of the prompt during a prefill in one pass ({peak} blocks) and gives back what no "
        "later token sees ({trimmed} blocks in all).",
    "note.probe_last_token": "The last token decoded is fed through once more, so {tokens} tokens a sequence (prompt + output) have "
        "rows in the cache.",
    # -- command line
    "help.probe": "A real prefill and decode over a paged cache, beside the prediction.",
    "help.probe.source": "as for the planner's commands; - reads a config.json from standard input",
    "help.probe.name": "the model's name in the result",
    "help.probe.device": "auto, cpu, cuda, cuda:1, mps ...",
    "help.probe.harmless": "a config key that does not touch the cache",
    # -- rows
    "row.kv": "KV bytes held",
    "row.kv.how": "storage of every tensor the run wrote to, cut to the blocks of {batch} live sequences of {tokens} tokens",
    "row.kv_group": "KV bytes held: {kind}, {layers} layers",
    "row.kv_group.how": "the same, this group alone",
    "row.blocks": "Blocks held: {kind}",
    "row.blocks.how": "different block ids in the tables of live sequences",
    "row.prefill_blocks": "Blocks held after the prefill: {kind}",
    "row.prefill_blocks.how": "blocks in use when the one-pass prefill ended, before old blocks of windows went back",
    "row.pool": "Pool bytes allocated: {kind}",
    "row.pool.how": "storage of the group's tensors, free blocks included",
    "row.fragmentation": "Empty part of the held blocks: {kind}",
    "row.fragmentation.how": "slots of held blocks without a row, by held slots; nothing is lost outside blocks",
    "row.weights": "Weights that ran",
    "row.weights.how": "storage of every weight tensor",
    "row.read": "KV bytes read by the last decode step",
    "row.read.how": "predicted: rows that the step may see; measured: whole blocks gathered, so somewhat more",
    "row.host_peak": "Process memory, peak",
    "row.host_peak.how": "VmHWM of the process, torch itself included",
    "row.device_peak": "Device memory allocated, peak",
    "row.device_peak.how": "torch's allocator: tensors at their peak",
    "row.device_reserved": "Device memory reserved",
    "row.device_reserved.how": "torch's allocator: segments taken from the driver",
    "help.probe.run": "probe one model",
    "help.probe.memory_cap": "memory that the run may use, such as 2GiB",
}  # fmt: skip
