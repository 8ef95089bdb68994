#pragma once
#include <string>

#include "models/model_config.h"
#include "optim/schedule.h"
#include "train/run_config.h"

namespace tessera {

// What a checkpoint holds beside tensors: run.json.
struct RunRecord {
  int64_t step = 0;             // steps done, skipped ones included
  int64_t position = 0;         // samples handed out, over all ranks
  int64_t tokens_seen = 0;
  int64_t skipped_in_a_row = 0;
  int64_t parameter_count = 0;
  std::string last_good_checkpoint;
  ScheduleState schedule;
  ModelConfig model;
  RunConfig options;
};

std::string to_json(const RunRecord& record);
// UserError naming `where` when the text is not such a record.
RunRecord run_record_from_json(std::string_view text, std::string_view where);

}  // namespace tessera
