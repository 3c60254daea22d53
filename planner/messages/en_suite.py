"""English texts of the probe's suite: what the articles say, and what was measured. Times say which unit they are in."""

TEXT: dict[str, str] = {
    # -- command line
    "help.probe.suite": "claims on the cost of inference, measured on this host with small shapes",
    "help.probe.suite.only": "only these items",
    "help.probe.suite.out": "a folder for suite.json and suite.md",
    "help.probe.suite.calibration": "print what a latency model takes instead: rates and overheads of this host",
    "help.probe.dist": "MLA and GQA over several ranks on this machine: bytes of every rank, and equal outputs",
    "help.probe.dist.ranks": "processes to start (torchrun): 1, 2, 4 or 8",
    # -- errors
    "error.probe_suite_item": "The suite has no item {value}.",
    "error.probe_suite_item.hint": "Choose among {known}.",
    "error.probe_ranks": "The shapes of this check cannot be spread over {value} ranks.",
    "error.probe_ranks.hint": "Choose one of {known}.",
    "error.probe_out": "The folder {value} cannot be written: {reason}.",
    "error.probe_out.hint": "Name a folder that you may write to.",
    "error.calibration_unreadable": "This result cannot calibrate anything: {field} is missing or is no number.",
    "error.calibration_unreadable.hint": "Run python -m gpu_probe suite --json on the host and give its last line.",
    "error.calibration_unsteady": "The host's ceilings differ by a factor of {factor} between the start and the end of the run.",
    "error.calibration_unsteady.hint": "Run it again when the machine is quiet: more than 1.25 says nothing about the host.",
    # -- on the Validate page
    "page.suite.title": "What the articles say, measured",
    "page.suite.about": "A result of python -m gpu_probe suite, from {device}: small shapes, random weights. Sizes are exact; a verdict on time holds "
        "for that host alone.",
    "page.suite.calibration": "That host, for estimates of time: reads {read} GB/s, multiplies {flop} GFLOP/s, and spends {fixed} a step and {layer} a "
        "layer besides.",
    "page.suite.no_calibration": "No calibration from this result: {reason}",
    "page.column.claims": "Claims",
    "page.column.says": "The document says",
    "page.column.found": "Measured there",
    "page.column.verdict": "Verdict",
    # -- the table
    "suite.title": "## What the articles say, measured on {device}",
    "suite.columns": "| claims | item | the document says | measured here | verdict |",
    "suite.circumstances": "Small shapes with random weights in fp32; medians of {rounds} interleaved rounds (fewer for the long ones), quartiles in "
        "brackets; torch {torch}, {threads} thread, attention {backend}. Ceilings before / after: reading {read_before} / {read_after} GB/s, products "
        "{flop_before} / {flop_after} GFLOP/s. {wall} s in all.",
    "suite.unsteady": "The ceilings before and after differ by over a quarter: the machine was busy, and verdicts on time may be wrong.",
    "suite.bytes_wrong": "**At least one size that was counted differs from its prediction.**",
    "suite.verdict.holds": "holds here",
    "suite.verdict.does_not_hold": "does not hold here",
    "suite.verdict.undecided": "cannot be decided here",
    "suite.failed.says": "(not run)",
    # -- items
    "suite.cache.says": "Without a cache every step recomputes everything; with it the time a token is roughly constant, and memory grows linearly.",
    "suite.cache.measured": "From {first} to {last} tokens of context a token takes {with_growth} times as long with a cache and {without_growth} without; "
        "slopes {with_slope} and {without_slope} microseconds a token per token of context. Logits differ by {error}.",
    "suite.prompt.says": "Doubling the prompt makes dense attention work about four times larger; the whole prefill grows less.",
    "suite.prompt.measured": "From {before} to {last} tokens: score products x 4 (counted), time in attention x {attention}, whole prefill x {prefill}. "
        "Attention is {share} % of the longest prefill.",
    "suite.phases.says": "Prefill and decode have different bottlenecks; small-batch decode is bound by reading weights and the cache.",
    "suite.phases.measured": "Prefill of {prompt} tokens: {ttft} ms, at {prefill_of_matmul} % of the matmul and {prefill_of_read} % of the read ceiling. "
        "Decode: {itl} ms, at {decode_of_matmul} % and {decode_of_read} % ({largest_of_read} % with the largest cache).",
    "suite.itl.says": "ITL gets worse as batch or context grows, because the cache is read.",
    "suite.itl.measured": "ITL = {fixed} ms + {sequence} ms a sequence + {token} microseconds a cached token (worst point {worst} % off). From {first} to "
        "{last} tokens x {context}; at {last} tokens from batch 1 to {most} x {batch}.",
    "suite.kinds_bytes.says": "The cache shrinks with the KV heads (MHA, GQA, MQA); MLA keeps a latent of rank + RoPE numbers instead.",
    "suite.kinds_bytes.measured": "MHA holds {mha} bytes; GQA {gqa} times, MQA {mqa} times and MLA {mla} times less, as the formulas say.",
    "suite.gqa_speed.says": "GQA is between MHA and MQA in size, and near MQA in speed.",
    "suite.gqa_speed.measured": "ITL: MHA {mha}, GQA {gqa}, MQA {mqa}, MLA {mla} ms; against MHA x {gqa_faster}, x {mqa_faster}, x {mla_faster} faster. The "
        "verdict is on the order MHA, GQA, MQA, and on GQA being nearer to MQA than to MHA.",
    "suite.mqa_latency.says": "Reports of MQA: 30 % lower latency.",
    "suite.mqa_latency.measured": "ITL of MQA is {reduction} % lower than that of MHA (MQA / MHA {ratio}).",
    "suite.mqa_throughput.says": "Reports of MQA: up to 11 times the throughput.",
    "suite.mqa_throughput.measured": "With the bytes of 1 sequence of MHA, MQA holds {sequences} and makes x {gained} tokens a second. Other models and "
        "machines may well reach more or less: \"up to\" is confirmed here or left open.",
    "suite.quality.says": "GQA and MQA share keys: quality may fall, GQA's stays near MHA's.",
    "suite.quality.measured": "Not measured: weights are random, and random weights have no quality.",
    "suite.absorbed.says": "MLA need not restore K and V: the up-projections go into the query and the output (absorption), with the same result.",
    "suite.absorbed.measured": "Absorbed {fast} ms, expanded {slow} ms: x {ratio}. Outputs differ by {error}.",
    "suite.unchanged.says": "K and V of a token never change once made; a step appends one row.",
    "suite.unchanged.measured": "After {steps} steps all {tokens} old rows are the same, bit for bit; each step wrote one row of {row} bytes a sequence.",
    "suite.paged.says": "What a GPU holds depends on how blocks are allocated: room for the longest wastes what short requests leave.",
    "suite.paged.measured": "{sequences} requests of up to {longest} tokens: {found} bytes in blocks of 16 ({waste} % empty), {reserved} reserved at "
        "full length ({lost} % empty).",
    "suite.prefix.says": "Reusing a repeated prefix saves capacity.",
    "suite.prefix.measured": "{sequences} requests with {common} common and {own} own tokens: {shared} bytes together, {apart} apart (x {ratio}).",
    "suite.kv_dtype.says": "The bytes of the cache follow its element type.",
    "suite.kv_dtype.measured": "Bytes by those of bf16, scales counted: {ratios}.",
    "suite.llama_size.says": "Llama-2-13B takes about 1 MB a token, about 4 GB at 4,000 tokens.",
    "suite.llama_size.measured": "Exactly {each} bytes a token and {total} bytes ({gib} GiB) at 4,000, from one layer held in fp16, times 40. \"About\" is "
        "taken as within a quarter.",
    "suite.llama_weights.says": "That is comparable with the model itself.",
    "suite.llama_weights.measured": "4,000 tokens are {share} % of the weights ({weights}); {tokens} tokens, over several requests, are as large. "
        "Comparable is taken as half or more.",
    "suite.ranks.says": "Under tensor parallelism MLA's latent is on every rank; with data-parallel attention it is there once.",
    "suite.ranks.measured": "On 2 / 4 ranks all ranks together keep {tp} copies of the latent under TP, {dp} under DP attention; GQA with 4 KV heads {gqa} "
        "under TP. Outputs differ from one rank's by {error}.",
}  # fmt: skip
