#include "hub/remote_model.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"
#include "base/text.h"
#include "hub/tokenizer_files.h"
#include "hub/weight_index.h"
#include "remote/hub_files.h"
#include "remote/s3_files.h"
#include "remote/source.h"
#include "remote/url.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kConfiguration = "config.json";
constexpr std::string_view kGeneration = "generation_config.json";

using Entries = std::vector<RemoteEntry>;

bool is_web(std::string_view name) {
  return name.starts_with("http://") || name.starts_with("https://");
}
bool is_s3(std::string_view name) { return name.starts_with("s3://"); }

std::optional<HubReference> hub_reference_of(std::string_view name, const HubSettings& hub) {
  std::optional<HubReference> reference;
  if (name.starts_with("hf://")) {
    reference = parse_hub_reference(name);
    if (reference->is_dataset)
      throw UserError(cat("'", name, "' is a data set; a model is hf://OWNER/NAME"));
  } else if (name.starts_with(cat(hub.endpoint, "/"))) {
    // The address of its page.
    reference = find_model_name(name.substr(hub.endpoint.size() + 1));
  } else if (!is_web(name) && !is_s3(name)) {
    reference = find_model_name(name);
  }
  return reference;
}

const RemoteEntry* find(const Entries& entries, std::string_view path) {
  auto found = std::ranges::find(entries, path, &RemoteEntry::path);
  return found == entries.end() ? nullptr : &*found;
}

bool is_top(std::string_view path) { return path.find('/') == path.npos; }

bool is_of_tokenizer(std::string_view path) {
  return is_top(path) &&
         (is_tokenizer_file(path) || path.ends_with(".model") || path.ends_with(".tiktoken"));
}

// A place with files of models, and what is wanted of it.
class ModelPlace {
 public:
  // `more` finds a file that is not in the list; nullopt if there is none.
  ModelPlace(std::string_view name, Entries entries, const RemoteOptions& options,
             std::function<std::optional<RemoteEntry>(const std::string&)> more = {})
      : name_(name), entries_(std::move(entries)), options_(options), more_(std::move(more)) {}

  Entries choose(ModelParts parts) const {
    Entries chosen;
    auto add = [&](const RemoteEntry* entry) {
      if (entry && !find(chosen, entry->path)) chosen.push_back(*entry);
    };
    if (parts.configuration) {
      if (!find(entries_, kConfiguration))
        throw UserError(cat("'", name_, "' has no ", kConfiguration,
                            ": it is no model that can be read; check the name"));
      add(find(entries_, kConfiguration));
      add(find(entries_, kGeneration));
    }
    if (parts.tokenizer) {
      for (const RemoteEntry& entry : entries_) {
        if (is_of_tokenizer(entry.path)) add(&entry);
      }
      // The ids that begin and end its texts.
      if (!chosen.empty()) add(find(entries_, kConfiguration));
    }
    if (parts.weights) add_weights(chosen, add);
    if (chosen.empty())
      throw UserError(cat("'", name_, "' has no file of a tokenizer; check the name"));
    return chosen;
  }

  // Whether all of it is here. One that has no tokenizer at all looks like one that was fetched in
  // part: whoever has the whole list is asked.
  bool has(ModelParts parts) const {
    try {
      std::vector<std::string> names;
      for (const RemoteEntry& entry : choose(parts)) {
        if (is_top(entry.path)) names.push_back(entry.path);
      }
      return !parts.tokenizer || has_tokenizer_among(names);
    } catch (const UserError&) {
      return false;
    }
  }

 private:
  template <class Add>
  void add_weights(Entries& chosen, const Add& add) const {
    for (const WeightFileNames& names : kWeightFileNames) {
      if (const RemoteEntry* whole = find(entries_, names.whole)) return add(whole);
      if (const RemoteEntry* index = find(entries_, names.index))
        return add_indexed(*index, chosen, add);
    }
    std::vector<std::string_view> all;
    for (const WeightFileNames& names : kWeightFileNames)
      all.insert(all.end(), {names.whole, names.index});
    throw UserError(cat("'", name_, "' has no weights: there is none of ", join(all, ", "),
                        "; check the name"));
  }

  template <class Add>
  void add_indexed(const RemoteEntry& index, Entries& chosen, const Add& add) const {
    add(&index);
    fs::path file = fetch_file(index, options_);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : parse_weight_index(read_file(file), index.path))
      shards.insert(shard);
    for (const std::string& shard : shards) {
      if (const RemoteEntry* entry = find(entries_, shard)) {
        add(entry);
      } else if (auto found = more_ ? more_(shard) : std::nullopt) {
        chosen.push_back(*found);
      } else {
        throw UserError(cat("'", index.path, "' of '", name_, "' names '", shard,
                            "', which is not there: it is not whole"));
      }
    }
  }

  std::string_view name_;
  Entries entries_;
  const RemoteOptions& options_;
  std::function<std::optional<RemoteEntry>(const std::string&)> more_;
};

// An address taken apart: the directory with its slash, the file if it is one's address, and what
// stands behind a path.
struct Address {
  std::string directory, file, query;
};

Address address_of(std::string_view name) {
  Address address;
  size_t query = is_web(name) ? std::min(name.find_first_of("?#"), name.size()) : name.size();
  address.query = name.substr(query);
  std::string_view path = name.substr(0, query);
  while (path.ends_with('/')) path.remove_suffix(1);
  size_t slash = path.rfind('/');
  if (slash != path.npos && is_file_name(path.substr(slash + 1))) {
    address.file = path.substr(slash + 1);
    path = path.substr(0, slash);
  }
  address.directory = cat(path, "/");
  return address;
}

// The first of the names of weights that is there, of a place that cannot be listed.
std::optional<RemoteEntry> find_weights(
    const std::function<std::optional<RemoteEntry>(const std::string&)>& look_for) {
  for (const WeightFileNames& names : kWeightFileNames) {
    for (std::string_view name : {names.whole, names.index}) {
      if (auto found = look_for(std::string(name))) return found;
    }
  }
  return {};
}

fs::path fetch_from_address(std::string_view name, ModelParts parts, const RemoteOptions& options) {
  Address address = address_of(name);
  Entries entries;
  std::function<std::optional<RemoteEntry>(const std::string&)> more;
  if (is_s3(name)) {
    entries = list_s3_files(parse_s3_name(address.directory), options);
  } else {
    auto look_for = [&](const std::string& file, bool optional) {
      return find_web_file(cat(address.directory, percent_encode(file, false), address.query),
                           options, optional);
    };
    more = [look_for](const std::string& file) { return look_for(file, false); };
    auto look = [look_for](const std::string& file) { return look_for(file, true); };
    std::vector<std::string> files;
    if (parts.tokenizer) files = tokenizer_file_names();
    if (parts.configuration || parts.tokenizer) files.emplace_back(kConfiguration);
    if (parts.configuration) files.emplace_back(kGeneration);
    if (!address.file.empty()) files.push_back(address.file);
    std::ranges::sort(files);
    files.erase(std::unique(files.begin(), files.end()), files.end());
    for (const std::string& file : files) {
      const bool needed = file == address.file || (parts.configuration && file == kConfiguration);
      if (auto entry = look_for(file, !needed)) entries.push_back(std::move(*entry));
    }
    if (parts.weights) {
      auto weights = find_weights(look);
      if (weights && !find(entries, weights->path)) entries.push_back(std::move(*weights));
    }
  }
  if (entries.empty() && more) more(std::string(kConfiguration));  // says that access is denied
  if (!address.file.empty() && !find(entries, address.file))
    throw UserError(cat("'", public_url(name), "' is not there: check the address"));
  if (!address.file.empty() && parts.tokenizer) {
    // Not another tokenizer beside it.
    std::erase_if(entries, [&](const RemoteEntry& e) {
      return e.path != address.file && is_of_tokenizer(e.path) && !is_tokenizer_file(e.path);
    });
  }
  std::string shown = public_url(name);
  fs::path directory =
      fetch_directory(ModelPlace(shown, std::move(entries), options, more).choose(parts), options);
  return address.file.empty() || parts.configuration || parts.weights ? directory
                                                                      : directory / address.file;
}

}  // namespace

bool is_remote_model(std::string_view name) {
  if (is_web(name) || is_s3(name) || name.starts_with("hf://")) return true;
  std::error_code error;
  return !fs::exists(name, error) && find_model_name(name) && !is_file_name(name);
}

std::string pin_model(std::string_view name, ModelParts parts, const RemoteOptions& options) {
  auto reference = hub_reference_of(name, options.hub);
  if (!reference) return std::string(name);
  if (auto fetched = find_fetched_model(*reference, options)) {
    const std::string commit = fetched->empty() ? "" : fetched->front().revision;
    if (is_hub_commit(commit) && ModelPlace(name, std::move(*fetched), options).has(parts)) {
      reference->revision = commit;
      return to_text(*reference);
    }
  }
  return to_text(pin_hub_reference(*reference, options));
}

fs::path fetch_model(std::string_view name, ModelParts parts, const RemoteOptions& options) {
  auto reference = hub_reference_of(name, options.hub);
  if (!reference) return fetch_from_address(name, parts, options);
  if (auto fetched = find_fetched_model(*reference, options)) {
    ModelPlace place(name, std::move(*fetched), options);
    if (place.has(parts)) return fetch_directory(place.choose(parts), options);
  }
  HubReference pinned = pin_hub_reference(*reference, options);
  ModelPlace place(name, list_hub_files(pinned, options), options);
  return fetch_directory(place.choose(parts), options, model_snapshot(pinned, options));
}

std::string model_name_of(const std::string& path) {
  auto reference = model_of_snapshot(fs::path(path).lexically_normal());
  return reference ? to_text(*reference) : path;
}

}  // namespace tessera
