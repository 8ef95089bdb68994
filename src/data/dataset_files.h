#pragma once
#include <filesystem>
#include <vector>

namespace tessera {

// What the command line says about where the text is; an empty path was not given.
struct DatasetPaths {
  std::filesystem::path dataset;       // --dataset: a file or a directory
  std::filesystem::path training_dir;  // --training_dir
  std::filesystem::path test_dir;      // --test_dir: validation text
};

// Each list is sorted by path.
struct DatasetFiles {
  std::vector<std::filesystem::path> training;    // empty only if --test_dir alone was given
  std::vector<std::filesystem::path> validation;  // may be empty
};

// Finds the files.
//  - A dataset that is a file is training text.
//  - In a dataset directory the first of the words train, training, val, valid, validation, test in
//    a file's name decides (train.txt, val_00.jsonl, c4-validation.00000-of-00008.json.gz), else in
//    that of the innermost directory that has one (validation/00.txt). If no name says train, all
//    files that do not say validation are training; else files that say neither are left alone
//    (README.md).
//  - --training_dir takes the place of --dataset: every file in it is training text.
//  - Every file in --test_dir is validation text, instead of what a dataset directory holds of it.
// Directories are read in depth. What is hidden, links to directories and what is no regular file
// are left out.
//
// UserError: nothing given, or both --dataset and --training_dir; a path is missing, unreadable or
// of the wrong kind; a directory without a file (what was left out is named), or without a
// training file.
DatasetFiles find_dataset_files(const DatasetPaths& paths);

}  // namespace tessera
