#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "remote/hub_card.h"

namespace tessera {

// A file of a repository on the hub.
struct HubFile {
  std::string path;
  uint64_t size = 0;
  std::string sha256;    // of a file that is kept outside of git, else empty
  std::string git_sha1;  // of the others
  std::string split;     // that the card gives it, else empty
};

// What holds data, by its name, packed or not. Of several kinds in one place the first is read.
enum class DataKind { kParquet, kArrow, kJson, kText, kNone };
// kNone: hidden, a description, or of another name.
DataKind data_kind(std::string_view path);

// For the user: that files of the kind are read, and `others` of other kinds not; `how` to read
// them.
std::string left_out_kinds(std::string_view where, DataKind read, size_t others,
                           std::string_view first, std::string_view how);

// The split in a name SPLIT-00000-of-00010..., train_sft say; empty where a name has not that form.
std::string split_of(std::string_view path);

// What the directory of a split begins with of which the hub has converted the first part only.
inline constexpr std::string_view kPartialPrefix = "partial-";

// Whether a file among those of a data set describes it and is none of its data, by its name:
// README.md, dataset_infos.json and their like, and what begins with an underscore (_SUCCESS).
bool is_description(std::string_view path);

// The commit in the hub's answer about a revision: 40 hexadecimal digits. UserError that names
// `where`.
std::string parse_hub_revision(std::string_view json, std::string_view where);

// Adds the files of one page of the hub's answer about a tree. UserError that names `where`: broken
// JSON, another form, a path that leads out of a directory.
void parse_hub_tree(std::string_view json, std::string_view where, std::vector<HubFile>& files);

struct ChosenFiles {
  std::vector<HubFile> files;         // in the order of their paths
  std::vector<std::string> warnings;  // of what the user may not have meant
};

// The files of a data set's repository that hold its data. Those of one kind: Parquet, else Arrow,
// else JSON lines, else text, packed or not; hidden files and descriptions are none. A
// configuration is a directory, at the top or in data/, or one further down (sample/10BT). Without
// one it is `default`, if there is that; else of the files of the first kind those at the top, in
// data/ or in directories of splits; else those of the only directory; several are an error that
// lists them. Empty where the repository has no file of these kinds at all; UserError where it has
// none of this configuration, and no split of that name: of one only its files are chosen.
ChosenFiles choose_data_files(std::vector<HubFile> files, const std::string& config,
                              std::string_view where);

// The same by the card of the repository, where that says something of this name (HubCard::named):
// a file of two splits comes twice. By the paths where it does not, and, with a warning, where none
// of the files are there. UserError where there are several configurations and none is named.
ChosenFiles choose_card_files(const HubCard& card, const std::vector<HubFile>& files,
                              const std::string& config, std::string_view where);

}  // namespace tessera
