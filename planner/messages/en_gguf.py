"""English texts of the GGUF reader (planner.readers.gguf): merged into `en.TEXT`."""

TEXT: dict[str, str] = {
    "error.gguf_no_metadata": "A GGUF config needs an object metadata.",
    "error.gguf_no_metadata.hint": "Give the GGUF file itself.",
    "error.gguf_no_architecture": "The GGUF file does not say its architecture (general.architecture).",
    "error.gguf_no_architecture.hint": "Give the model's own GGUF file, or the config.json of the model.",
    "error.gguf_later_part": "This is part {part} of a split GGUF model; only the first part says what the model is.",
    "error.gguf_later_part.hint": "Give the first part, the one with 00001 in its name.",
    "error.gguf_not_a_model": "This GGUF file is no language model but a file of kind {kind}.",
    "error.gguf_not_a_model.hint": "Give the language model's own GGUF file, which lies beside it or is named on the page.",
    "error.gguf_no_cache": "Models of the GGUF architecture {architecture} keep no KV cache: every token sees the whole text at once.",
    "error.gguf_no_cache.hint": "Nothing is to be planned for it. For a decoder check the file.",
    "error.gguf_architecture": "The GGUF architecture {architecture} is not known here.",
    "error.gguf_architecture.hint": "Upload the config.json of the model that the file was made from.",
    "error.gguf_unknown_key": "The key {field} ({value}) of this {architecture} file is not known here, and could change what is cached.",
    "error.gguf_unknown_key.hint": "Upload the config.json of the model that the file was made from.",
    "error.gguf_only_drafts": "All {blocks} blocks of this GGUF file are draft layers ({drafts}): it holds no model of its own.",
    "error.gguf_only_drafts.hint": "Give the file of the whole model.",
    "error.gguf_blocks": "{field} is {value}, but the tensor table has {found} blocks.",
    "error.gguf_blocks.hint": "The metadata and the weights contradict each other: take the file from its source again.",
    "error.gguf_row": "{field} is {value}: a row of the tensor table is a type and a shape, like F16 4096x1024.",
    "error.gguf_row.hint": "Give the GGUF file itself.",
    "error.gguf_contradiction": "{field} and the tensor table contradict each other: {tensor} should be {header} wide by the metadata, and is {table}.",
    "error.gguf_contradiction.hint": "One of them is wrong, so nothing is planned. Take the file from its source again, or upload the model's config.json.",
    "note.gguf_read": "Read as llama.cpp keeps a model of the architecture {architecture}; weights are those of the file's tensor table.",
    "note.gguf_dtype": "The weights are stored as {stored}; the cache does not follow them and is taken as float16, llama.cpp's default.",
    "note.gguf_drafts": "{layers} draft layers at the end of the file cache nothing in ordinary use; their weights are counted.",
    "note.gguf_window_unused": "The file names a window of {window} tokens, but llama.cpp keeps every token for the architecture {architecture}.",
    "note.gguf_window_fixed": "llama.cpp takes a window of {window} tokens for {architecture}, whatever the file says ({given}).",
    "note.gguf_interval": "Every {every}. layer attends; the other {layers} layers keep a state.",
    "note.gguf_shared_fixed": "llama.cpp lets the last {layers} layers share caches, whatever the file says ({given}).",
    "note.gguf_expanded": (
        "This file lacks the head sizes of latent attention, or its architecture ({architecture}) never uses them: llama.cpp then keeps K "
        "and V of every head instead of one latent row."
    ),
    "note.doubt_gguf_part": "Not all tensors of the GGUF model are here ({key}), so its weights are counted by formula: up to {fewer} parameters fewer, or {more} more.",
}  # fmt: skip
