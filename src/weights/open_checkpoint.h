#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "options/run_record.h"

namespace tessera {

RunRecord record_of(const CheckpointReader& checkpoint);
// As shown_record().
std::string shown_record_of(const CheckpointReader& checkpoint);

// A complete checkpoint of this or an earlier version of the format. UserError as CheckpointReader;
// of an earlier version also files that do not hold what the record of the run says.
std::unique_ptr<CheckpointReader> open_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace tessera
