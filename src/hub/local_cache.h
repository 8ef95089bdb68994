#pragma once
#include <filesystem>
#include <optional>
#include <string_view>

namespace tessera {

// The directory of a model in the cache that Hugging Face's tools keep on this machine, for a name
// as "meta-llama/Llama-3.2-1B" or "gpt2": HOME/hub/models--ORG--NAME/snapshots/COMMIT, the commit
// being that of refs/main or, without it, the newest snapshot. A name without an organisation also
// stands for the only model of that name of any. `hf_home` is what HF_HOME holds; empty:
// ~/.cache/huggingface. Nothing is fetched. nullopt if there is none, or `name` is no such name.
std::optional<std::filesystem::path> find_cached_model(std::string_view name,
                                                       const std::filesystem::path& hf_home);

}  // namespace tessera
