#include "tables/saved_dataset.h"

#include <simdjson.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

[[noreturn]] void fail(std::string_view name, std::string_view what) {
  throw UserError(cat("'", name, "' ", what, "; save the data set again"));
}

// The file as a JSON object, as long as `parser` lives.
simdjson::dom::object parse(simdjson::dom::parser& parser, std::string_view json,
                            std::string_view name) {
  simdjson::dom::object object;
  if (parser.parse(json.data(), json.size()).get(object)) fail(name, "is not a JSON object");
  return object;
}

std::string plain_name(std::string_view text, std::string_view name) {
  if (!is_plain_name(text)) fail(name, cat("names '", text, "', which is no file beside it"));
  return std::string(text);
}

SavedSplit split_of_state(const std::filesystem::path& directory, std::string split) {
  const auto path = directory / "state.json";
  SavedState state = parse_saved_state(read_file(path), path.string());
  SavedSplit out{split.empty() ? std::move(state.split) : std::move(split), {}};
  for (const std::string& file : state.files) {
    out.files.push_back(directory / file);
    if (!is_file(out.files.back()))
      fail(path.string(), cat("names '", file, "', and there is no such file"));
  }
  return out;
}

// "-00001-of-00012" at the end of a file's stem: which of how many. Nothing where it is not there.
struct Shard {
  size_t index = 0, count = 1;
};
std::optional<Shard> take_shard(std::string_view& stem) {
  const size_t of = stem.rfind("-of-");
  if (of == std::string_view::npos) return std::nullopt;
  const size_t dash = stem.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto index = parse_number<size_t>(stem.substr(dash + 1, of - dash - 1)),
             count = parse_number<size_t>(stem.substr(of + 4));
  if (!index || !count) return std::nullopt;
  stem = stem.substr(0, dash);
  return Shard{*index, *count};
}

std::vector<SavedSplit> splits_of_cache(const std::filesystem::path& directory) {
  const auto info = directory / "dataset_info.json";
  const std::string text = read_file(info);
  simdjson::dom::parser parser;
  simdjson::dom::object splits;
  if (parse(parser, text, info.string())["splits"].get(splits)) return {};
  std::vector<SavedSplit> out;
  for (auto field : splits) out.push_back({std::string(field.key), {}});

  std::map<std::filesystem::path, Shard> shards;
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().extension() == ".arrow") files.push_back(entry.path());
  if (error) throw UserError(cat("cannot read '", directory.string(), "': ", error.message()));
  if (files.empty()) return {};  // it has another form, such as Parquet
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const std::string whole = file.stem().string();
    std::string_view stem = whole;
    const auto shard = take_shard(stem);
    for (SavedSplit& split : out) {
      if (!stem.ends_with(cat("-", split.name))) continue;
      split.files.push_back(file);
      shards[file] = shard.value_or(Shard{});
    }
  }
  for (SavedSplit& split : out) {
    if (split.files.empty())
      fail(info.string(), cat("names the split '", split.name, "', of which there is no file"));
    const size_t count = shards[split.files[0]].count;
    for (size_t i = 0; i < split.files.size(); ++i)
      if (shards[split.files[i]].index != i || split.files.size() != count)
        fail(directory.string(), cat("has ", split.files.size(), " files of the split '",
                                     split.name, "', and they are not all of ", count));
  }
  return out;
}

}  // namespace

std::vector<std::string> splits_of_dataset_dict(std::string_view dataset_dict_json,
                                                std::string_view name) {
  simdjson::dom::parser parser;
  simdjson::dom::array splits;
  if (parse(parser, dataset_dict_json, name)["splits"].get(splits))
    fail(name, "has no list \"splits\"");
  std::vector<std::string> out;
  for (auto split : splits) {
    std::string_view text;
    if (split.get(text)) fail(name, "has a split that is not a string");
    out.push_back(plain_name(text, name));
  }
  return out;
}

SavedState parse_saved_state(std::string_view state_json, std::string_view name) {
  simdjson::dom::parser parser;
  const auto state = parse(parser, state_json, name);
  SavedState out;
  std::string_view split;
  if (!state["_split"].get(split)) out.split = std::string(split);
  // Old versions kept a selection of the rows in a file of its own.
  simdjson::dom::array indices;
  if (!state["_indices_data_files"].get(indices) && indices.size() > 0)
    fail(name, "selects rows by a file of indices, which is not read");
  simdjson::dom::array files;
  if (state["_data_files"].get(files)) fail(name, "has no list \"_data_files\"");
  for (auto file : files) {
    std::string_view text;
    if (file["filename"].get(text)) fail(name, "has a file without a \"filename\"");
    out.files.push_back(plain_name(text, name));
  }
  return out;
}

std::optional<std::vector<SavedSplit>> saved_dataset(const std::filesystem::path& directory) {
  const auto dict = directory / "dataset_dict.json";
  if (is_file(dict)) {
    std::vector<SavedSplit> out;
    for (std::string& split : splits_of_dataset_dict(read_file(dict), dict.string()))
      out.push_back(split_of_state(directory / split, split));
    return out;
  }
  if (is_file(directory / "state.json")) return std::vector{split_of_state(directory, "")};
  if (!is_file(directory / "dataset_info.json")) return std::nullopt;
  auto splits = splits_of_cache(directory);
  if (splits.empty()) return std::nullopt;
  return splits;
}

}  // namespace tessera
