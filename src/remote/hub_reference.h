#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// A data set or a model on Hugging Face's hub.
struct HubReference {
  bool is_dataset = false;
  std::string repository;  // "OWNER/NAME", or "NAME" of the hub's oldest ones
  std::string config;      // of a data set; may be empty
  std::string revision;    // branch, tag or commit; empty: the main branch
  std::string given;       // as it was written
};

// hf://datasets/OWNER/NAME[/CONFIG][@REVISION], hf://OWNER/NAME[@REVISION] (a model), each also
// without OWNER/. UserError that shows the form.
HubReference parse_hub_reference(std::string_view text);

// What the short name of a well-known data set stands for: c4 and allenai/c4 (configuration en),
// wikicorpus (raw_en), openwebtext. Elsewhere OWNER/NAME is that data set; nullopt for anything
// else.
std::optional<HubReference> find_dataset_name(std::string_view name);

// OWNER/NAME[@REVISION], a model; one of the names gpt2, gpt2-medium, gpt2-large, gpt2-xl,
// distilgpt2 too. nullopt for anything else.
std::optional<HubReference> find_model_name(std::string_view name);

// A commit is 40 hexadecimal digits: what a revision is today and for ever.
bool is_hub_commit(std::string_view revision);

// hf://... that parse_hub_reference() reads as the same; NAME/CONFIG of a data set without OWNER/
// would be read as OWNER/NAME.
std::string to_text(const HubReference& reference);

}  // namespace tessera
