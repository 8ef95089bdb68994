#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/directory.h"
#include "options/option_parser.h"

namespace tessera {

// `tessera checkpoint ls ...` and so on; `parsed.words` begins with the word behind `checkpoint`.
// Return the exit status.
int list_checkpoint_directory(const ParsedOptions& parsed);
int show_checkpoint(const ParsedOptions& parsed);
int verify_checkpoints(const ParsedOptions& parsed);
int prune_checkpoints(const ParsedOptions& parsed);
int diff_checkpoints(const ParsedOptions& parsed);
int convert_checkpoint(ParsedOptions& parsed);

// What the path stands for: the checkpoint that it is itself, with whatever is wrong with it, else
// those in the directory, without what is half written. UserError if there is nothing.
std::vector<CheckpointEntry> checkpoints_at(const std::filesystem::path& path);

// The checkpoint at the path or, of a directory, the newest complete one.
std::unique_ptr<CheckpointReader> open_newest(const std::filesystem::path& path);

// Columns with two blanks between them, lines without blanks at their ends.
std::string columns(const std::vector<std::vector<std::string>>& rows);

// "step          20"
std::string labelled(std::string_view label, std::string_view text);

// The first digits of the identity of a run, "-" where there is none.
std::string short_identity(const std::string& identity);

void print_json(const nlohmann::ordered_json& json);

}  // namespace tessera
