#include "remote/hub_reference.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kScheme = "hf://";
constexpr std::string_view kForms =
    "give hf://datasets/OWNER/NAME[/CONFIG][@REVISION] or, for a model, hf://OWNER/NAME[@REVISION]";

struct ShortName {
  std::string_view name, repository, config;
};
// Data sets that are known by a name of their own, and the configuration that is meant by it.
constexpr std::array kShortNames{
    ShortName{"c4", "allenai/c4", "en"},
    ShortName{"allenai/c4", "allenai/c4", "en"},
    ShortName{"wikicorpus", "wikicorpus", "raw_en"},
    ShortName{"openwebtext", "Skylion007/openwebtext", ""},
};

// Models that the hub has under a name of one word, its oldest ones.
constexpr std::array<std::string_view, 5> kModelNames{"gpt2", "gpt2-medium", "gpt2-large",
                                                      "gpt2-xl", "distilgpt2"};

// The hub gives no name that begins with a dot or a dash.
bool is_name(std::string_view text) {
  if (text.starts_with('.') || text.starts_with('-')) return false;
  return is_plain_name(text) && text.size() <= 96 && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

// refs/convert/parquet is one.
bool is_revision(std::string_view text) {
  auto parts = split(text, '/');
  return text.size() <= 200 && std::ranges::all_of(parts, is_name);
}

}  // namespace

HubReference parse_hub_reference(std::string_view text) {
  HubReference reference;
  reference.given = text;
  auto fail = [&](std::string_view why) {
    throw UserError(
        cat("'", text.substr(0, 200), "' names nothing on the hub: ", why, "; ", kForms));
  };
  if (!text.starts_with(kScheme)) fail("it does not begin with hf://");
  std::string_view rest = text.substr(kScheme.size());
  if (size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_revision(reference.revision)) fail("behind @ must be a branch, a tag or a commit");
  }
  auto parts = split(rest, '/');
  reference.is_dataset = parts.size() > 1 && parts[0] == "datasets";
  if (reference.is_dataset) parts.erase(parts.begin());
  if (parts.size() > (reference.is_dataset ? 3u : 2u)) fail("it has too many parts");
  if (!std::ranges::all_of(parts, is_name))
    fail(
        "a part is empty, begins with '.' or '-' or has another character than letters, digits, "
        "'-', '_' and '.'");
  reference.repository = parts.size() == 1 ? std::string(parts[0]) : cat(parts[0], "/", parts[1]);
  if (parts.size() == 3) reference.config = parts[2];
  return reference;
}

std::optional<HubReference> find_dataset_name(std::string_view name) {
  for (const ShortName& known : kShortNames) {
    if (name == known.name)
      return HubReference{true, std::string(known.repository), std::string(known.config), "",
                          std::string(name)};
  }
  if (!is_hub_name(name) || is_file_name(name)) return {};
  return HubReference{true, std::string(name), "", "", std::string(name)};
}

std::optional<HubReference> find_model_name(std::string_view name) {
  size_t at = std::min(name.find('@'), name.size());
  auto parts = split(name.substr(0, at), '/');
  const bool is_known = std::ranges::find(kModelNames, name.substr(0, at)) != kModelNames.end();
  if (!is_known && (parts.size() != 2 || !std::ranges::all_of(parts, is_name))) return {};
  HubReference reference;
  reference.repository = name.substr(0, at);
  reference.given = name;
  if (at < name.size()) {
    reference.revision = name.substr(at + 1);
    if (!is_revision(reference.revision)) return {};
  }
  return reference;
}

bool is_hub_commit(std::string_view revision) {
  return revision.size() == 40 && std::ranges::all_of(revision, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string to_text(const HubReference& reference) {
  return cat(kScheme, reference.is_dataset ? "datasets/" : "", reference.repository,
             reference.config.empty() ? "" : "/", reference.config,
             reference.revision.empty() ? "" : "@", reference.revision);
}

}  // namespace tessera
