#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A part of a data set, such as "train", and the files of its rows in order.
struct SavedSplit {
  std::string name;  // empty where the directory does not name it
  std::vector<std::filesystem::path> files;
};

// The splits of a directory that Hugging Face's datasets wrote, in the order in which it lists
// them:
// - save_to_disk of a DatasetDict: dataset_dict.json, and a directory a split;
// - save_to_disk of a Dataset: state.json, which lists its files;
// - a cache: dataset_info.json and NAME-SPLIT.arrow, or NAME-SPLIT-00000-of-00002.arrow and so on.
// Nothing where it is none of these. UserError where a description is broken, or names what is not
// there, or where nobody may look.
std::optional<std::vector<SavedSplit>> saved_dataset(const std::filesystem::path& directory);

// What these descriptions hold, for directories that are elsewhere. `name`: of the file, for
// messages.
std::vector<std::string> splits_of_dataset_dict(std::string_view dataset_dict_json,
                                                std::string_view name);
struct SavedState {
  std::string split;               // "" where it is not known
  std::vector<std::string> files;  // plain names, in the directory of state.json
};
SavedState parse_saved_state(std::string_view state_json, std::string_view name);

}  // namespace tessera
