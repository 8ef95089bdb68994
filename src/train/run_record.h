#pragma once
#include <optional>
#include <string>

#include "models/model_config.h"
#include "optim/schedule.h"
#include "train/loss_scaling.h"
#include "train/run_config.h"

namespace tessera {

// What a checkpoint holds beside tensors: run.json.
struct RunRecord {
  int64_t step = 0;      // steps done, skipped ones included
  int64_t position = 0;  // samples handed out, over all ranks
  int64_t tokens_seen = 0;
  int64_t skipped_in_a_row = 0;
  int64_t parameter_count = 0;
  std::optional<LossScaleState> loss_scale;  // of a run that scales its loss
  std::string last_good_checkpoint;
  std::string mesh = "whole parameters";  // Parallelism::state_text() of the run
  ScheduleState schedule;
  ModelConfig model;
  RunConfig options;
};

std::string to_json(const RunRecord& record);
// UserError naming `where` when the text is not such a record.
RunRecord run_record_from_json(std::string_view text, std::string_view where);

// "num_heads: 4 there, 2 in this run": the first field by which the model of a checkpoint and that
// of a run compute different things from the same weights; "" if there is none. How the weights
// were first drawn, dropout and, unless positions are learned, the length of the windows do not
// count.
std::string model_difference(const ModelConfig& checkpoint, const ModelConfig& run);

}  // namespace tessera
