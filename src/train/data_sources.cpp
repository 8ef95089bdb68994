// Where the data of a job are: from options to files.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "options/remote_options.h"
#include "remote/source.h"
#include "train/token_parts.h"
#include "train/training_data.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// train.bin of a directory, its own path or below --dataset_dir; nothing where there is none.
fs::path token_directory(const RunConfig& config, const std::string& dataset) {
  std::error_code ignored;
  for (const fs::path& directory : {fs::path(dataset), fs::path(config.dataset_dir) / dataset})
    if (!dataset.empty() && fs::is_regular_file(directory / "train.bin", ignored)) return directory;
  return {};
}

DatasetFiles token_files(const fs::path& directory) {
  std::error_code ignored;
  DatasetFiles files;
  files.training = local_entries(std::vector{directory / "train.bin"});
  if (fs::is_regular_file(directory / "val.bin", ignored))
    files.validation = local_entries(std::vector{directory / "val.bin"});
  return files;
}

// What is called neither as a file nor as what is on a server has been looked for in both places.
void require_named(const RunConfig& config, const std::string& name) {
  std::error_code ignored;
  if (fs::path(name).has_extension() || is_pattern(name)) return;
  if (is_remote_name(name) || fs::exists(name, ignored)) return;
  throw UserError(cat("--dataset: cannot read '", name,
                      "': there is no such file or directory, nor --dataset_dir's '",
                      (fs::path(config.dataset_dir) / name / "train.bin").string(), "'"));
}

bool is_prepared(const std::string& name) { return !name.empty() && is_prepared_dataset(name); }

// The prepared data that a name stands for; empty where it is of another kind.
std::string prepared_directory(const RunConfig& config, const std::string& name) {
  if (name.empty() || (!is_prepared(name) && !token_directory(config, name).empty())) return {};
  return find_prepared_dataset(name).value_or("").string();
}

struct NamedSource {
  std::string name;
  double weight = 1;
};

std::vector<NamedSource> parts_of_mix(const RunConfig& config) {
  std::vector<NamedSource> parts;
  for (const std::string& text : config.dataset_mix) {
    const size_t mark = text.rfind('=');
    NamedSource part{text.substr(0, mark)};
    const auto weight = mark == text.npos
                            ? std::nullopt
                            : parse_number<double>(std::string_view(text).substr(mark + 1));
    if (!weight || part.name.empty() || !(*weight > 0) || *weight > 1e9) {
      throw UsageError(cat("--dataset_mix: '", text,
                           "' is not NAME=WEIGHT with a weight above 0; for example --dataset_mix "
                           "c4=0.7 own.jsonl=0.3"));
    }
    part.weight = *weight;
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<NamedSource> named_sources(const RunConfig& config) {
  if (config.use_synthetic_data) return {};
  if (!config.dataset_mix.empty()) return parts_of_mix(config);
  // The default is a data set that nobody evaluates on by accident.
  const bool held_out = !config.validation_dataset.empty() || !config.test_dir.empty();
  if (config.eval_only && held_out && config.training_dir.empty() &&
      config.dataset == RunConfig().dataset)
    return {{""}};
  return {{config.training_dir.empty() ? config.dataset : config.training_dir}};
}

// Of all data of a job.
struct Names {
  std::vector<std::string> remote, here;
};

Names names_of(const RunConfig& config) {
  const bool by_directory = config.dataset_mix.empty() && !config.training_dir.empty();
  Names all;
  auto add = [&](const std::string& name, bool is_directory) {
    if (name.empty()) return;
    const bool remote = is_directory
                            ? is_address(name)
                            : token_directory(config, name).empty() && is_remote_name(name);
    (remote ? all.remote : all.here).push_back(name);
  };
  add(config.validation_dataset, false);
  add(config.test_dir, true);
  for (const NamedSource& source : named_sources(config)) add(source.name, by_directory);
  return all;
}

std::string suffix(const RunConfig& config) {
  if (config.dataset_type == "hf") return ".arrow";
  return config.zipped_data ? ".json.gz" : ".json";
}

}  // namespace

std::vector<DataSource> find_data_sources(const RunConfig& config) {
  const RemoteOptions remote = remote_options(config);
  std::vector<DataSource> sources;
  for (const NamedSource& named : named_sources(config)) {
    DataSource source{named.name, named.weight};
    const bool first = sources.empty();
    DatasetNames names{.config = config.dataset_config_name, .suffix = suffix(config)};
    if (config.dataset_mix.empty()) names.training_dir = config.training_dir;
    if (names.training_dir.empty()) names.dataset = named.name;
    source.prepared = prepared_directory(config, cat(names.dataset, names.training_dir));
    if (!source.prepared.empty()) {
      names.dataset.clear();
      names.training_dir.clear();
    }
    const fs::path tokens = token_directory(config, names.dataset);
    if (tokens.empty() && !names.dataset.empty()) require_named(config, names.dataset);
    if (!tokens.empty()) {
      source.files = token_files(tokens);
      names.dataset.clear();
    }
    // What is held out by name belongs to the first.
    if (first) {
      names.validation = config.validation_dataset;
      if (names.validation.empty()) names.test_dir = config.test_dir;
      source.prepared_validation =
          prepared_directory(config, cat(names.validation, names.test_dir));
      if (!source.prepared_validation.empty()) {
        names.validation.clear();
        names.test_dir.clear();
      }
    }
    const bool looks = !names.dataset.empty() || !names.training_dir.empty() ||
                       !names.validation.empty() || !names.test_dir.empty();
    if (looks) {
      DatasetFiles found = find_dataset_files(names, remote);
      if (tokens.empty()) source.files.training = std::move(found.training);
      if (tokens.empty() || !found.validation.empty())
        source.files.validation = std::move(found.validation);
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

bool has_validation(const std::vector<DataSource>& sources) {
  return std::ranges::any_of(sources, [](const DataSource& source) {
    return !source.files.validation.empty() || !source.prepared_validation.empty();
  });
}

bool hold_out_files(double fraction, DataSource& source) {
  auto& training = source.files.training;
  const auto count = static_cast<double>(training.size());
  if (fraction <= 0 || training.size() < 2) return false;
  const auto held_out = std::min(training.size() - 1,
                                 static_cast<size_t>(std::max(1.0, std::ceil(fraction * count))));
  source.files.validation.assign(training.end() - static_cast<std::ptrdiff_t>(held_out),
                                 training.end());
  training.resize(training.size() - held_out);
  return true;
}

int64_t reading_bytes_here(const RunConfig& config) {
  try {
    if (names_are_remote(config)) return 0;
    std::vector<DataSource> sources = find_data_sources(config);
    if (!has_validation(sources) && !sources.empty())
      hold_out_files(config.validation_fraction, sources[0]);
    int64_t bytes = 0;
    for (const DataSource& source : sources) {
      if (const auto kind = kind_of_files(config, source.files.training))
        bytes += reading_bytes(source.files.training, reading_options(config, *kind, 0));
    }
    return bytes;
  } catch (const UserError&) {
    return 0;
  }
}

std::vector<fs::path> token_directories(const RunConfig& config) {
  std::vector<fs::path> directories;
  if (config.dataset_mix.empty() && !config.training_dir.empty()) return directories;
  for (const NamedSource& source : named_sources(config)) {
    if (is_prepared(source.name)) continue;
    std::error_code ignored;
    const fs::path directory = token_directory(config, source.name);
    if (!directory.empty())
      directories.push_back(directory);
    else if (source.name.ends_with(".bin") && fs::is_regular_file(source.name, ignored))
      directories.push_back(fs::path(source.name).parent_path());
  }
  return directories;
}

bool names_are_remote(const RunConfig& config) { return !names_of(config).remote.empty(); }

std::string to_text(const std::vector<DataSource>& sources) {
  std::string text = cat(sources.size(), "\n");
  for (const DataSource& source : sources) {
    const std::string files = to_text(source.files);
    text += cat(source.name, "\n", format("%a", source.weight), "\n", source.prepared, "\n",
                source.prepared_validation, "\n", files.size(), "\n", files);
  }
  return text;
}

std::vector<DataSource> data_sources_from_text(std::string_view text) {
  auto line = [&] {
    const size_t end = text.find('\n');
    TESSERA_CHECK(end != std::string_view::npos, "a list of data sets that is cut short");
    std::string field(text.substr(0, end));
    text.remove_prefix(end + 1);
    return field;
  };
  std::vector<DataSource> sources(std::stoull(line()));
  for (DataSource& source : sources) {
    source.name = line();
    source.weight = std::stod(line());
    source.prepared = line();
    source.prepared_validation = line();
    const size_t size = std::stoull(line());
    source.files = dataset_files_from_text(text.substr(0, size));
    text.remove_prefix(size);
  }
  return sources;
}

bool data_need_tokenizer(const RunConfig& config) {
  if (config.use_synthetic_data) return false;
  const Names names = names_of(config);
  // What they hold is not known yet, but for files of ids.
  if (!std::ranges::all_of(names.remote, [](const auto& name) { return name.ends_with(".bin"); }))
    return true;
  if (names.here.empty()) return false;
  const std::vector<DataSource> sources = find_data_sources(config);
  auto is_to_encode = [&](const std::vector<RemoteEntry>& files) {
    return kind_of_files(config, files).value_or(RecordKind::kIds) != RecordKind::kIds;
  };
  return std::ranges::any_of(sources, [&](const DataSource& source) {
    return is_to_encode(source.files.training) || is_to_encode(source.files.validation);
  });
}

bool is_tokenizer_there(const RunConfig& config) {
  std::error_code ignored;
  return config.tokenizer == "byte" || fs::exists(config.tokenizer, ignored);
}

}  // namespace tessera
