#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remote/options.h"
#include "remote/remote_entry.h"

namespace tessera {

// What the command line says about where the data are; an empty name was not given. A name is one
// of remote/source.h: a path of this machine, or what is fetched.
struct DatasetNames {
  std::string dataset;       // --dataset: a file, a pattern of files, a directory or a remote name
  std::string config;        // --dataset_config_name
  std::string training_dir;  // --training_dir
  std::string test_dir;      // --test_dir: validation data
  std::string validation;    // --validation_dataset
  std::string suffix;  // of files in training_dir and test_dir; where none has it, all are taken
  const char* option = "--dataset";  // what errors say of `dataset`
};

// Each list is in the order in which it is read.
struct DatasetFiles {
  std::vector<RemoteEntry> training;    // empty only if validation data alone were given
  std::vector<RemoteEntry> validation;  // may be empty
};

// Finds the files.
//  - A dataset that is a file is training data.
//  - In a dataset of several files (a directory, or a pattern: `part-*.jsonl.gz`) the first of the
//    words train, training, val, valid, validation, test in a file's name decides (train.txt,
//    val_00.jsonl, c4-validation.00000-of-00008.json.gz), else in that of the innermost directory
//    that has one (validation/00.txt). If no name says train, all files that do not say validation
//    are training; else files that say neither are left alone. A pattern of which all
//    matches say validation asks for these: they are training data. Where the card of a repository
//    on the hub gives a file a split, the name of that decides alone.
//  - Of training files of several kinds in a directory (data_kind() of remote/hub_listing.h) those
//    of the first kind are read, as on the hub, and a warning names the others. Where they are of
//    several splits (train_sft-00000-of-00003...), all are read, and a warning names those.
//  - --dataset_config_name names a configuration on the hub, and a directory in one of this
//    machine; where there is none, a split.
//  - --training_dir takes the place of --dataset: every file in it is training data. As
//    --test_dir it is a directory of this machine, or the address of one elsewhere.
//  - Every file of --validation_dataset and --test_dir is validation data, instead of what a
//    dataset holds of it.
// Of several files those that describe data (remote/hub_listing.h: README.md, _SUCCESS) are left
// out. Directories are read in depth, by path; of a pattern those that match where no file does.
// What is hidden, links to directories and what is no regular file are left out. A directory that
// Hugging Face's datasets wrote (tables/saved_dataset.h) is what its description says, in its
// order.
//
// UserError: nothing given, or both a dataset and a training_dir; a path is missing, unreadable or
// of the wrong kind; a directory without a file (what was left out is named), or without a training
// file; what remote/source.h reports.
DatasetFiles find_dataset_files(const DatasetNames& names, const RemoteOptions& remote = {});

// Whether a name is a pattern of files.
bool is_pattern(std::string_view name);

// As the other ranks of a job are told: what a server lists costs requests.
std::string to_text(const DatasetFiles& files);
DatasetFiles dataset_files_from_text(std::string_view text);

// Files of this machine, in the order of `paths`. UserError where one cannot be read.
std::vector<RemoteEntry> local_entries(std::span<const std::filesystem::path> paths);

// Whether it lies on a server.
bool is_remote(const RemoteEntry& entry);
// Tells its content from that of any other: path, size and time of change of a file of this
// machine; address, size and version of one on a server. UserError if a file is missing.
uint64_t file_identity(const RemoteEntry& entry);
// For messages: the path of this machine, or the URL without secrets.
std::string shown_name(const RemoteEntry& entry);

}  // namespace tessera
