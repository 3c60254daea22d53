"""English texts of `planner.sources` and `planner.hardware`: merged into `en.TEXT`."""

TEXT: dict[str, str] = {
    # -- bytes that are no config --------------------------------------------------------------------------------------
    "error.is_empty": "The file or text is empty.",
    "error.is_empty.hint": "Give the content of a config.json: it starts with a brace and names the model's layers and heads.",
    "error.too_large": "The config has {size_bytes} bytes; at most {limit_bytes} bytes are read.",
    "error.too_large.hint": "A config.json has a few thousand bytes. Weights are not needed: give only the config.json beside them.",
    "error.is_gguf": "This is a GGUF file where a config.json was expected.",
    "error.is_gguf.hint": "Give the GGUF file itself: its path, its page address or an upload.",
    "error.is_safetensors": "This is a safetensors file: weights, not a config.",
    "error.is_safetensors.hint": "Give the config.json that lies beside it.",
    "error.is_binary": "This is a {format} file, not a config.",
    "error.is_binary.hint": "Give the model's config.json as it stands in the repository, unpacked.",
    "error.has_zero_bytes": "This is a binary file: it holds NUL bytes (of value 0).",
    "error.has_zero_bytes.hint": "Give the model's config.json, a text file.",
    "error.bad_encoding": "The text is not valid {encoding}: byte {position} does not belong to it.",
    "error.bad_encoding.hint": "Save the file as UTF-8. UTF-16 and files with a byte-order mark are read too.",
    "error.bad_character": "{field} holds half a character (a lone surrogate), which is no text.",
    "error.bad_character.hint": "Correct the escape sequence, or take the file from the model's repository again.",
    "error.is_html": "This is a web page, not a config.",
    "error.is_html.hint": "On the model's page open config.json and use its download link, or give the page's address itself.",
    "error.is_lfs_pointer": "This is a Git LFS pointer: it stands for the file, but is not the file.",
    "error.is_lfs_pointer.hint": "Run git lfs pull in the repository, or download the config.json from the model's page.",
    "error.too_deep": "Objects and lists lie more than {limit} deep in each other.",
    "error.too_deep.hint": "No published config does that. Take the file from the model's repository again.",
    "error.is_truncated": "The JSON text ends too early: something opened in or before line {line} is never closed.",
    "error.is_truncated.hint": "The file was cut off. Download or copy it again, whole.",
    "error.has_trailing_text": "The JSON object is complete, but more text follows at line {line}, column {column}: {near}",
    "error.has_trailing_text.hint": "Give one config at a time, and remove what stands behind its last brace.",
    "error.not_json": "The text is not JSON: line {line}, column {column} is wrong, at {near}",
    "error.not_json.hint": (
        "Check that line for a missing comma or quotation mark, a trailing comma, a comment or a Python word (True, "
        "None)."
    ),
    "error.not_an_object": "A config is a JSON object with keys; this is a JSON {found}.",
    "error.not_an_object.hint": "Give the whole config.json, from its first brace to its last.",
    "error.not_finite": "{field} is {literal}, which is no finite number.",
    "error.not_finite.hint": "Write a number, or null where the value is not set.",
    "error.number_too_long": "{field} is a number of more than {limit} digits.",
    "error.number_too_long.hint": "Correct it: no size of a model needs that many.",
    "error.is_weight_index": "This is a weight index (model.safetensors.index.json), not a config.",
    "error.is_weight_index.hint": "Give the config.json that lies beside it.",
    "error.is_adapter": "This is an adapter's config (LoRA or another PEFT method): it does not say the model's layers.",
    "error.is_adapter.hint": "Give the config.json of the base model, which base_model_name_or_path names.",
    "error.is_quantization_file": "This is a hf_quant_config.json: it says how the weights are stored, not the model's layers.",
    "error.is_quantization_file.hint": "Give the folder, or the config.json that lies beside it.",
    "error.is_tokenizer": "This is a tokenizer's config, not the model's.",
    "error.is_tokenizer.hint": "Give the config.json that lies beside it.",
    "error.is_diffusion_model": "This is the config of a diffusion model: it keeps no KV cache over tokens.",
    "error.is_diffusion_model.hint": "Give the config.json of a language model.",
    "note.decoded_as": "The file was read as {encoding}.",
    "note.repeated_key": "{key} stands in the file more than once; the last value counts.",
    # -- GGUF ----------------------------------------------------------------------------------------------------------
    "error.gguf_magic": "{name} does not start like a GGUF file.",
    "error.gguf_magic.hint": "Give the file from its beginning, as it was downloaded.",
    "error.gguf_version": "The GGUF file {name} is of version {version}; versions 2 and 3 are read.",
    "error.gguf_version.hint": "Convert the model again with a current llama.cpp.",
    "error.gguf_cut": "The GGUF file {name} ends inside its header, after {found_bytes} bytes.",
    "error.gguf_cut.hint": "Give more of its beginning: most headers take 4 to 16 MiB (head -c 32M model.gguf > head.gguf).",
    "error.gguf_too_large": "The header of the GGUF file {name} says that it is larger than {limit_bytes} bytes, the most that is read.",
    "error.gguf_too_large.hint": "No published file needs that. Download it again, or give the config.json of the model.",
    "error.gguf_count": "The GGUF file {name} gives {count} for {field}; at most {limit} are read.",
    "error.gguf_count.hint": "No published file has that many: the header is broken. Download the file again.",
    "error.gguf_long": "The GGUF file {name} has a name of {size} bytes; at most {limit} are read.",
    "error.gguf_long.hint": "The header is broken. Download the file again.",
    "error.gguf_repeated": "The GGUF file {name} has the name {field} more than once.",
    "error.gguf_repeated.hint": "llama.cpp refuses such a file too. Download or convert it again.",
    "error.gguf_nameless": "The GGUF file {name} has a key without a name.",
    "error.gguf_nameless.hint": "llama.cpp refuses such a file too. Download or convert it again.",
    "error.gguf_repeated_parts": "Several parts of this GGUF model have the tensor {field}.",
    "error.gguf_repeated_parts.hint": "The parts belong to different models or downloads: download all of them again.",
    "error.gguf_value_type": "The GGUF file {name} has a value of type {number} under {field}, which the format does not know there.",
    "error.gguf_value_type.hint": "The header is broken. Download the file again.",
    "error.gguf_dims": "The tensor {field} of the GGUF file {name} has {dims} dimensions; at most {limit} are possible.",
    "error.gguf_dims.hint": "The header is broken. Download the file again.",
    "error.gguf_tensor_type": "The tensor {field} of the GGUF file {name} is of type {number}, whose size is not known here.",
    "error.gguf_tensor_type.hint": "Types that llama.cpp has given up need a new conversion; for a new type give the config.json of the model.",
    "error.gguf_shape": "The tensor {field} of the GGUF file {name} cannot be {shape} in {type}.",
    "error.gguf_shape.hint": "A row must be whole blocks of its type. The header is broken: download the file again.",
    "error.gguf_offset": "The tensor {field} of the GGUF file {name} starts at byte {offset} of the data, where {expected} comes next.",
    "error.gguf_offset.hint": "llama.cpp refuses such a file too. Download or convert it again.",
    "error.gguf_alignment": "general.alignment of the GGUF file {name} is {value}, which is no power of two.",
    "error.gguf_alignment.hint": "llama.cpp refuses such a file too. Download or convert it again.",
    "error.gguf_part_missing": "{part}, one of the {parts} parts of this GGUF model, is not there.",
    "error.gguf_part_missing.hint": "Put all parts beside each other under their own names. For the caches alone upload the first part.",
    "error.gguf_split_count": "{name} counts {parts} parts in its name, but {count} in its header.",
    "error.gguf_split_count.hint": "Give the files their original names back.",
    "error.gguf_tensors_missing": "The parts of this GGUF model hold {found} tensors together; the first part promises {promised}.",
    "error.gguf_tensors_missing.hint": "Download the parts again: they do not belong together, or one is not whole.",
    "note.gguf_header_only": "Only the beginning of the file is here: {missing} bytes of weights are missing. The header is whole, and nothing else is read.",
    # -- finding the source --------------------------------------------------------------------------------------------
    "error.source_empty": "No model was given.",
    "error.source_empty.hint": "Give a hub id (org/model), a page address, a config.json, a GGUF file, a folder, a catalog name or pasted JSON.",
    "error.source_unreadable": "{source} is neither a file here nor a hub id.",
    "error.source_unreadable.hint": (
        "A hub id looks like org/model or org/model@revision. Check the spelling, or give the path of a "
        "config.json."
    ),
    "error.unknown_source": "{name} is neither a file here nor a name in the catalog.",
    "error.unknown_source.hint": "Near names in the catalog: {near}. A model on the hub needs its owner too: org/model.",
    "error.unknown_catalog_name": "The catalog has no model {name}.",
    "error.unknown_catalog_name.hint": "Near names: {near}.",
    "error.no_such_file": "There is no file or folder {path}.",
    "error.no_such_file.hint": "Check the path. For a model on the hub give org/model, without a dot or slash before it.",
    "error.paths_not_allowed": "{path} is a path; this server opens no files of its own for its users.",
    "error.paths_not_allowed.hint": "Upload the config.json, or paste its text.",
    "error.not_a_file": "{path} is not an ordinary file.",
    "error.not_a_file.hint": "Give a config.json or the folder that holds it.",
    "error.no_permission": "{path} may not be read.",
    "error.no_permission.hint": "Change the file's permissions, or paste its text.",
    "error.cannot_read": "{path} could not be read ({reason}).",
    "error.cannot_read.hint": "Try again, or paste the text of the config.json.",
    "error.folder_no_config": "The folder {path} holds no config.json and no GGUF model.",
    "error.folder_no_config.hint": "Give the folder that the model was downloaded to, or the config.json itself.",
    "error.folder_several_gguf": "The folder {path} holds {count} GGUF models and no config.json: {names}",
    "error.folder_several_gguf.hint": "Give the path of one of the files.",
    "error.folder_adapter": "The folder {path} holds an adapter (LoRA or another PEFT method), not a model.",
    "error.folder_adapter.hint": "Give the base model, which adapter_config.json names.",
    "error.folder_unreadable": "The folder {path} may not be read.",
    "error.folder_unreadable.hint": "Change its permissions, or paste the text of the config.json.",
    "error.bad_table": "The table {table} that comes with this program cannot be read.",
    "error.bad_table.hint": "Install the program again; if that does not help, this is our fault: please report it.",
    "note.from_catalog": "The config is the catalog's row {name}, not a file.",
    "note.quantization_from_beside": "The quantization was taken from hf_quant_config.json, because config.json names none.",
    "note.quantization_beside_unread": "hf_quant_config.json beside the config could not be read.",
    "note.weights_by_file_size": "The bytes of the weights are the sizes of {count} pytorch_model.bin file(s), a little more than their tensors.",
    "note.weights_by_headers": "The bytes of the weights are those of {count} safetensors file(s), by their headers.",
    "note.weights_by_index": "The bytes of the weights are the total of the weight index; {count} of its files are not here (such as {name}).",
    "note.weights_header_unread": "The header of {name} could not be read ({reason}): the bytes of the weights follow from the shapes instead.",
    "note.weights_shards_missing": "{count} weight files of the index are not here (such as {name}): the bytes of the weights follow from the shapes instead.",
    # -- the hub -------------------------------------------------------------------------------------------------------
    "error.address_unreadable": "{address} is not a web address.",
    "error.address_unreadable.hint": "Give the model's page address or its id: org/model.",
    "error.address_elsewhere": "Addresses of {host} are not fetched; only {hub} and huggingface.co are.",
    "error.address_elsewhere.hint": (
        "Download the config.json yourself and give the file, or paste its text. A mirror is chosen with "
        "HF_ENDPOINT."
    ),
    "error.address_not_a_model": "{address} is not the page of a model.",
    "error.address_not_a_model.hint": "Give the model's page address or its id: org/model.",
    "error.hub_bad_id": "{repo} is not a model id.",
    "error.hub_bad_id.hint": "It looks like org/model. Copy it from the head of the model's page.",
    "error.hub_gated": "{repo} is gated: its files are given only to accounts that have accepted its terms. No token was sent.",
    "error.hub_gated.hint": (
        "Accept the terms on the model's page and give a token of that account (HF_TOKEN on the command line), or open "
        "config.json there and "
        "upload or paste it."
    ),
    "error.hub_gated_for_token": "{repo} is gated, and the account of the token that was given has no access to it.",
    "error.hub_gated_for_token.hint": (
        "Accept the terms on the model's page with that account and wait for the owner's consent; a fine-grained token "
        "also needs the right to "
        "read gated repositories. Or upload or paste the config.json."
    ),
    "error.hub_not_found": (
        "{hub} does not show {repo}. Either there is no such model, or it is private or gated: no token was sent, and the hub "
        "answers alike."
    ),
    "error.hub_not_found.hint": (
        "Check the spelling of org/model. If the model is private or gated, give a token that has access (HF_TOKEN on "
        "the command line), or "
        "upload or paste its config.json."
    ),
    "error.hub_not_found_with_token": (
        "{hub} does not show {repo}. Either there is no such model, or it is private and the token that was given does not open "
        "it."
    ),
    "error.hub_not_found_with_token.hint": "Check the spelling of org/model and the token's account, or upload or paste the config.json.",
    "error.hub_forbidden": "{hub} forbids access to {repo}.",
    "error.hub_forbidden.hint": "Give a token with the right to read this repository, or upload or paste its config.json.",
    "error.hub_disabled": "{hub} has disabled {repo}.",
    "error.hub_disabled.hint": "Look at the model's page for the reason. If you have its config.json, upload or paste it.",
    "error.hub_no_revision": "{repo} has no branch, tag or commit {revision}.",
    "error.hub_no_revision.hint": "Leave the revision away to read main, or copy the commit from the repository's history.",
    "error.hub_no_config": "{repo} has no config.json and no GGUF model.",
    "error.hub_no_config.hint": "Give the repository that holds the model in transformers' format, often linked on the page.",
    "error.hub_no_file": "{repo} has no file {file}.",
    "error.hub_no_file.hint": "Copy the address from the file's page again, or give org/model for its config.json.",
    "error.gguf_several": "{repo} holds {count} GGUF models and no config.json: {names}",
    "error.gguf_several.hint": "Give one of them with its name, like {first}, or its page address.",
    "error.hub_no_ranges": "{hub} does not send parts of a file, so the header of {repo} cannot be read without its weights.",
    "error.hub_no_ranges.hint": "Download the file, or its first 32 MiB, and give that.",
    "error.hub_adapter": "{repo} holds an adapter (LoRA or another PEFT method), not a model.",
    "error.hub_adapter.hint": "Give the base model: the adapter's page and its adapter_config.json name it.",
    "error.hub_diffusers": "{repo} is a diffusion pipeline: it has no config.json of a language model.",
    "error.hub_diffusers.hint": "Give a language model.",
    "error.hub_params_json": "{repo} has the maker's own params.json but no config.json.",
    "error.hub_params_json.hint": (
        "Give the repository with the same model in transformers' format, often named with -hf or linked on the "
        "page."
    ),
    "error.hub_offline": "The hub is switched off here (HF_HUB_OFFLINE).",
    "error.hub_offline.hint": "Upload or paste the config.json, give a folder, or take a model from the catalog.",
    "error.hub_bad_token": "{hub} refused the token that was given. Only that one was sent, never one saved on this machine.",
    "error.hub_bad_token.hint": "Make a new read token in the account's settings, or leave it away for a public model.",
    "error.hub_token_malformed": "The token holds characters that no token has.",
    "error.hub_token_malformed.hint": "Copy it again without quotation marks or line breaks: it starts with hf_.",
    "error.hub_rate_limit": "{hub} asks to slow down (status 429).",
    "error.hub_rate_limit.hint": "Try again in a few minutes; a token raises the limit. Or upload or paste the config.json.",
    "error.hub_failed": "{hub} answered with an error of its own (status {status}).",
    "error.hub_failed.hint": "Try again later, or upload or paste the config.json.",
    "error.hub_unreachable": "{hub} cannot be reached from this machine.",
    "error.hub_unreachable.hint": (
        "Check the network or choose a mirror with HF_ENDPOINT. Or upload or paste the config.json, or take a model from the "
        "catalog."
    ),
    "error.hub_odd_answer": "{hub} gave an answer that is not a model hub's (status {status}): a proxy's or log-in page, perhaps.",
    "error.hub_odd_answer.hint": "Open the model's page in a browser from this machine. Or upload or paste the config.json.",
    "error.hub_client_missing": "The package huggingface_hub is not installed here, so the hub cannot be asked.",
    "error.hub_client_missing.hint": "Install it, or upload or paste the config.json, or take a model from the catalog.",
    "error.source_with_secret": "The name of the model holds a token, or a user's name and password, which do not belong there.",
    "error.source_with_secret.hint": "Take it out and give the token in its own field (HF_TOKEN on the command line); if it was shared already, replace it.",
    "error.hub_private": "{hub} led to an address inside a private network, which is not followed.",
    "error.hub_private.hint": "Give the model's config.json itself. A mirror inside your network is named by whoever runs the server (HF_ENDPOINT).",
    # -- accelerators --------------------------------------------------------------------------------------------------
    "error.gpu_unknown": "No accelerator {name} is in the table.",
    "error.gpu_unknown.hint": "Near names: {near}. Any other device can be given by its memory and bandwidth.",
    "error.gpu_ambiguous": "{name} stands for several accelerators.",
    "error.gpu_ambiguous.hint": "Say which: {near}.",
    "error.gpu_without_name": "A device of your own needs a name.",
    "error.gpu_without_name.hint": "Give it any name, for example the one that its driver prints.",
    "error.gpu_rate_dtype": "{field} is not a dtype that rates are kept for.",
    "error.gpu_rate_dtype.hint": "Known: {known}.",
    "note.memory_is_marketed": (
        "The memory of {name} is the marketed figure: what its driver reports was not seen, and is less on most "
        "devices."
    ),
}  # fmt: skip

# The same failures for a model that the catalog has: the hint then names the row.
_LISTED = " The catalog has this shape: catalog:{catalog}"
for _code in (
    "hub_gated", "hub_gated_for_token", "hub_not_found", "hub_not_found_with_token", "hub_forbidden", "hub_offline", "hub_bad_token",
    "hub_rate_limit", "hub_failed", "hub_unreachable", "hub_odd_answer", "hub_client_missing",
):  # fmt: skip
    TEXT[f"error.{_code}_listed"] = TEXT[f"error.{_code}"]
    TEXT[f"error.{_code}_listed.hint"] = TEXT[f"error.{_code}.hint"] + _LISTED
