#include "remote/hub_listing.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "remote/path_pattern.h"

namespace tessera {
namespace {

constexpr size_t kMaxFiles = 500'000;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxPathBytes = 1024;
constexpr std::string_view kDataFolder = "data/";

[[noreturn]] void fail(std::string_view where, std::string_view why) {
  throw UserError(
      cat("cannot use the answer of '", where, "': ", why, "; check that HF_ENDPOINT is a hub"));
}

class Document {
 public:
  Document(std::string_view json, std::string_view where) {
    simdjson::padded_string padded(json);
    if (parser_.allocate(std::max<size_t>(json.size(), 1), kMaxDepth) ||
        parser_.parse(padded).get(root_))
      fail(where, "it is not valid JSON");
  }
  simdjson::dom::element root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

std::string string_in(simdjson::dom::object object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) ? "" : std::string(text);
}

bool is_hash(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A file below some directory, whatever system that is on.
bool is_safe_path(std::string_view path) {
  if (path.size() > kMaxPathBytes) return false;
  for (char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  return std::ranges::all_of(split(path, '/'), is_plain_name);
}

std::string file_name(std::string_view path) { return lower(path.substr(path.rfind('/') + 1)); }

// Of a split, or of the part of one that the hub has converted.
bool is_split(std::string_view directory) {
  constexpr std::array<std::string_view, 6> kSplits{"train", "training",   "val",
                                                    "valid", "validation", "test"};
  if (directory.starts_with(kPartialPrefix)) directory.remove_prefix(kPartialPrefix.size());
  return std::ranges::find(kSplits, directory) != kSplits.end();
}

// The first directory, unless it is data/ or that of a split; empty if there is none.
std::string config_of(std::string_view path) {
  if (path.starts_with(kDataFolder)) return config_of(path.substr(kDataFolder.size()));
  const size_t slash = path.find('/');
  const std::string_view first = path.substr(0, slash);
  return slash == std::string_view::npos || is_split(first) ? "" : std::string(first);
}

// What a path is below the directory of a configuration; nullopt elsewhere.
std::optional<std::string_view> below_config(std::string_view path, const std::string& config) {
  const std::string folder = cat(config, "/");
  if (path.starts_with(folder)) return path.substr(folder.size());
  if (!path.starts_with(kDataFolder)) return {};
  path.remove_prefix(kDataFolder.size());
  return path.starts_with(folder) ? std::optional(path.substr(folder.size())) : std::nullopt;
}

DataKind best_kind(const std::vector<HubFile>& files) {
  DataKind best = DataKind::kNone;
  for (const HubFile& file : files) best = std::min(best, data_kind(file.path));
  return best;
}

// The directories that may be named as a configuration.
std::set<std::string> configs_of(const std::vector<HubFile>& files) {
  std::set<std::string> configs;
  for (const HubFile& file : files) {
    configs.insert(config_of(file.path));
    if (file.path.starts_with(kDataFolder) && !config_of(file.path).empty()) configs.insert("data");
  }
  configs.erase("");
  return configs;
}

// Of files without a configuration that was named.
void keep_usual_config(std::vector<HubFile>& files, std::string_view where) {
  auto keep = [&](const std::string& config) {
    std::erase_if(files, [&](const HubFile& file) { return config_of(file.path) != config; });
  };
  auto has = [](const std::vector<HubFile>& some, std::string_view config) {
    return std::ranges::any_of(some,
                               [&](const HubFile& file) { return config_of(file.path) == config; });
  };
  if (has(files, "default")) return keep("default");
  const DataKind best = best_kind(files);
  std::vector<HubFile> of_best = files;
  std::erase_if(of_best, [&](const HubFile& file) { return data_kind(file.path) != best; });
  if (has(of_best, "")) return keep("");
  std::set<std::string> configs = configs_of(of_best);
  if (configs.size() > 1 + configs.count("data")) {
    throw UserError(cat("'", where, "' has several configurations: name one of ",
                        join(configs, ", "), " (hf://datasets/OWNER/NAME/CONFIG)"));
  }
  keep(config_of(of_best[0].path));
}

// Those of the first kind that there is; a warning names the others.
void take_best_kind(std::vector<HubFile> files, std::string_view where, ChosenFiles& chosen) {
  const DataKind best =
      best_kind(files);  // a configuration may have another one than its neighbours
  std::ranges::stable_sort(files, {}, &HubFile::path);
  const auto others = std::stable_partition(files.begin(), files.end(), [&](const HubFile& file) {
    return data_kind(file.path) == best;
  });
  if (others != files.end())
    chosen.warnings.push_back(left_out_kinds(where, best, static_cast<size_t>(files.end() - others),
                                             others->path,
                                             "fetch them and give their path to read them"));
  files.erase(others, files.end());
  chosen.files = std::move(files);
}

}  // namespace

bool is_description(std::string_view path) {
  constexpr std::array<std::string_view, 10> kDescriptions{
      "dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json", "config.json",
      "metadata.json",      "requirements.txt",  "license.txt",       "readme.txt", "readme.md"};
  const std::string name = file_name(path);
  return name.starts_with('_') || std::ranges::find(kDescriptions, name) != kDescriptions.end();
}

DataKind data_kind(std::string_view path) {
  for (std::string_view part : split(path, '/')) {
    if (part.starts_with('.')) return DataKind::kNone;
  }
  if (is_description(path)) return DataKind::kNone;
  std::string name = file_name(path);
  for (std::string_view packed : {".gz", ".zst", ".bz2", ".xz"}) {
    if (name.ends_with(packed)) {
      name.resize(name.size() - packed.size());
      break;
    }
  }
  if (name.ends_with(".parquet")) return DataKind::kParquet;
  if (name.ends_with(".arrow")) return DataKind::kArrow;
  if (name.ends_with(".json") || name.ends_with(".jsonl") || name.ends_with(".ndjson"))
    return DataKind::kJson;
  return name.ends_with(".txt") ? DataKind::kText : DataKind::kNone;
}

std::string left_out_kinds(std::string_view where, DataKind read, size_t others,
                           std::string_view first, std::string_view how) {
  constexpr std::array<const char*, 4> kNames{"Parquet", "Arrow", "JSON", "text"};
  return cat("'", where, "': its ", kNames.at(static_cast<size_t>(read)), " files are read, and ",
             others, others == 1 ? " of another kind is" : " of other kinds are",
             " left out, the first: '", first, "'; ", how);
}

std::string split_of(std::string_view path) {
  constexpr std::string_view kOf = "-of-", kDigits = "0123456789";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t of = name.find(kOf);
  if (of == name.npos || name.find_first_of(kDigits, of) != of + kOf.size()) return "";
  const size_t separator = name.substr(0, of).find_last_not_of(kDigits);
  if (separator == name.npos || separator + 1 == of) return "";
  return std::string(name.substr(0, separator));
}

std::string parse_hub_revision(std::string_view json, std::string_view where) {
  Document document(json, where);
  simdjson::dom::object object;
  if (document.root().get(object)) fail(where, "it is not an object");
  std::string commit = string_in(object, "sha");
  if (!is_hash(commit, 40)) fail(where, "it has no commit in \"sha\"");
  return commit;
}

void parse_hub_tree(std::string_view json, std::string_view where, std::vector<HubFile>& files) {
  Document document(json, where);
  simdjson::dom::array entries;
  if (document.root().get(entries)) fail(where, "it is not a list of files");
  for (simdjson::dom::element entry : entries) {
    simdjson::dom::object object, outside;
    if (entry.get(object)) fail(where, "a file is not an object");
    std::string type = string_in(object, "type");
    if (type == "directory") continue;
    HubFile file;
    file.path = string_in(object, "path");
    if (type != "file" || object["size"].get(file.size) || !is_safe_path(file.path) ||
        file.size > uint64_t{1} << 60)
      fail(where, cat("a file ('", file.path.substr(0, 100), "') lacks its type, path or size"));
    if (!object["lfs"].get(outside)) {
      file.sha256 = string_in(outside, "oid");
      if (!is_hash(file.sha256, 64)) fail(where, cat("'", file.path, "' has no valid SHA-256"));
    } else if (std::string id = string_in(object, "oid"); is_hash(id, 40)) {
      file.git_sha1 = std::move(id);
    }
    if (files.size() >= kMaxFiles) fail(where, cat("it has more than ", kMaxFiles, " files"));
    files.push_back(std::move(file));
  }
}

ChosenFiles choose_data_files(std::vector<HubFile> files, const std::string& config,
                              std::string_view where) {
  std::erase_if(files, [](const HubFile& file) { return data_kind(file.path) == DataKind::kNone; });
  if (files.empty()) return {};
  ChosenFiles chosen;
  if (config.empty()) {
    keep_usual_config(files, where);
  } else {
    const std::set<std::string> configs = configs_of(files);
    std::set<std::string> deeper;
    std::vector<HubFile> of_split;
    std::ranges::copy_if(files, std::back_inserter(of_split),
                         [&](const HubFile& file) { return split_of(file.path) == config; });
    std::erase_if(files, [&](const HubFile& file) {
      const auto below = below_config(file.path, config);
      if (below) deeper.insert(config_of(*below));
      return !below;
    });
    if (files.empty() && !of_split.empty()) {
      files = std::move(of_split);
      keep_usual_config(files, where);
    }
    if (files.empty()) {
      throw UserError(
          cat("'", where, "' has no configuration '", config, "'",
              configs.empty() ? "; leave it out" : cat("; it has ", join(configs, ", "))));
    }
    if (deeper.size() > 1) {
      deeper.erase("");
      chosen.warnings.push_back(cat("'", where, "': all that is in '", config,
                                    "' is read as one data set, of the directories ",
                                    some_of(std::vector(deeper.begin(), deeper.end())),
                                    "; --dataset_config_name ", config, "/", *deeper.begin(),
                                    " reads one"));
    }
  }
  take_best_kind(std::move(files), where, chosen);
  return chosen;
}

ChosenFiles choose_card_files(const HubCard& card, const std::vector<HubFile>& files,
                              const std::string& config, std::string_view where) {
  if (card.configs.empty()) return choose_data_files(files, config, where);
  const std::optional<CardConfig> asked = card.named(config);
  const bool is_directory = std::ranges::any_of(
      files, [&](const HubFile& file) { return below_config(file.path, config).has_value(); });
  if (!asked && (config.empty() || !is_directory)) {
    std::vector<std::string> names;
    for (const CardConfig& one : card.configs) names.push_back(one.name);
    throw UserError(cat(
        "'", where, "' has ",
        config.empty() ? "several configurations" : cat("no configuration or split '", config, "'"),
        ": name one of ", some_of(names), " (--dataset_config_name)"));
  }
  if (!asked) return choose_data_files(files, config, where);
  if (asked->splits.empty()) return choose_data_files(files, "", where);
  std::vector<HubFile> found;
  bool any = false;
  for (const HubFile& file : files) {
    for (const CardSplit& part : asked->splits) {
      const bool is_of_it = std::ranges::any_of(part.patterns, [&](const std::string& pattern) {
        return matches_path_pattern(file.path, pattern);
      });
      any = any || is_of_it;
      if (!is_of_it || data_kind(file.path) == DataKind::kNone) continue;
      found.push_back(file);
      found.back().split = part.name;
    }
  }
  ChosenFiles chosen;
  if (!any) {
    chosen = choose_data_files(files, is_directory ? config : "", where);
    chosen.warnings.push_back(cat("'", where, "': its README.md describes configuration '",
                                  asked->name,
                                  "' by files that are not there: their paths tell what is read"));
  }
  if (!found.empty()) take_best_kind(std::move(found), where, chosen);
  return chosen;
}

}  // namespace tessera
