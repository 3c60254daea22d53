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
    "error.probe_transformers": "The injected runner needs the package {package}, which is not installed here.",
    "error.probe_transformers.hint": "Install it (pip install {package}), or choose the lean runner.",
    "error.probe_injected": "The injected runner cannot run this model: {reason}.",
    "error.probe_injected.hint": "It runs decoders with full, sliding and chunked attention and MLA. It does not run ALiBi, states, cross-attention "
        "or sparse indexers, and it approximates none of them.",
    "error.probe_weights": "There is no checkpoint with config.json and safetensors at {value}.",
    "error.probe_weights.hint": "Name a folder on this machine. The probe downloads nothing.",
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
    "note.probe_injected": "The model code is that of transformers {version}, over the probe's own pages.",
    "note.probe_handback": "This model attends by itself: its rows are gathered from the pages and handed back, exact but slower.",
    "note.probe_runner_fallback": "The lean runner refused this model ({reason}); the injected one ran it.",
    "note.probe_real_weights": "The weights are those of the folder {folder}.",
    "note.probe_random_hosted": "Weights are random: shapes and bytes are the model's, its answers are not.",
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
    "help.probe.runner": "lean: the probe's own decoder; injected: transformers' model code; auto: lean, and injected where lean refuses",
    "help.probe.weights": "a checkpoint folder (config.json, safetensors) for the injected runner",
    "help.probe.sweep": "tiny models of many families: paged run against full recomputation, and controls that must fail",
    "row.sweep": "{families} families right in {rows_right} of {rows_total} rows, {controls_caught} of {controls_total} controls noticed, "
        "largest error {max_error}",
    "help.probe.sweep.families": "only these model types",
    "help.probe.memory_cap": "memory that the run may use, such as 2GiB",
    # -- the Triton backend, and why it does not run
    "backend.triton.no_triton": "triton is not installed",
    "backend.triton.no_gpu": "the Triton kernels need a GPU",
    "backend.triton.old_gpu": "the Triton kernels need compute capability 7.5 or newer",
    "backend.triton.wide": "the rows are wider than the kernels' registers allow",
    # -- the GPU check
    "error.probe_no_gpu": "torch {torch} sees no GPU here.",
    "error.probe_no_gpu.hint": "Install a CUDA or ROCm build of torch that fits the driver, or add --dry to walk through the steps on the CPU.",
    "help.probe.gpu_check": "six minutes on a GPU: ceilings, bytes at four levels, kernels, and two models through the probe",
    "help.probe.gpu_check.dry": "what a CPU allows, small, with interpreted kernels: finds mistakes, measures nothing",
    "help.probe.gpu_check.out": "where to write the measurement: a .json file (its table beside it as .md), or a folder for <date>-<device>.json; "
        "docs/measurements without --dry",
    "gpu.title": "GPU check: {device}, {date}",
    "gpu.dry": "**A dry run on a CPU, with interpreted kernels: no figure below says anything about a GPU.**",
    "gpu.state": "The check is {state} after {seconds} s.",
    "gpu.written": "Written: {path}",
    "gpu.facts": "Versions and device. context_bytes: memory that the first CUDA call took, by nvidia-smi.",
    "gpu.ceilings": "The fastest that this device copies (reads and writes counted), reads and fills memory, and multiplies in bf16. "
        "Shares below are of the read ceiling.",
    "gpu.accounting": "The same bytes as tensors, as torch's allocator was asked for them and rounded them (512 bytes), as segments it "
        "reserved (2 or 20 MiB), and as the driver sees them. unusable: parts of segments that are free but too small.",
    "gpu.out_of_memory": "Allocations up to a cap of a tenth and beyond. The refusal must be an ordinary error, and the device must work after it.",
    "gpu.fp8": "Can fp8 rows be written by index, as fp8 and as plain bytes? error: the largest rounding of normal random numbers.",
    "gpu.kernels": "The Triton kernels beside float64. max_error is by the largest output; right: at most 1e-5 in fp32, 1e-2 below. "
        "first_call_s contains the compile.",
    "gpu.graph": "One decode step of 32 small layers, launched one by one and replayed as a CUDA graph: the difference is launch cost.",
    "gpu.probe_gqa": "Llama-3.1-8B's shapes with random weights, through the probe's own run. Predicted and measured bytes must be equal.",
    "gpu.probe_mla": "DeepSeek-V2-Lite's shapes with random weights, through the probe's own run. Predicted and measured bytes must be equal.",
    "gpu.sweep": "The best cut of the kernels for each size, in one CUDA graph over separate caches. GQA is 32 / 8 heads of 128, MLA 128 heads "
        "of 576 / 512, bf16. contiguous_over_paged: 1 is as fast as attention over contiguous memory. share_of_roofline: of the slower of "
        "reading and multiplying. differs: from the launch that was checked beside float64.",
    "gpu.ceilings_again": "The read ceiling once more. Not steady (moved by over a quarter): believe no share above.",
    "gpu.limit": "The time was over while a step hung.",
}  # fmt: skip
