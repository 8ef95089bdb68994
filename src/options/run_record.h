#pragma once
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model_config.h"
#include "optim/schedule.h"
#include "options/loss_scaling.h"
#include "options/run_config.h"

namespace tessera {

// The tokenizer that a run was trained with.
struct TokenizerRecord {
  std::string place;  // its file or folder in the checkpoint, or "byte"
  uint64_t fingerprint = 0;
};

// The training text as tokens, without what is held out for validation.
struct TextRecord {
  int64_t tokens = 0;
  uint64_t hash = 0;  // XXH3 of the ids of the whole data set
  bool operator==(const TextRecord&) const = default;
};

// What a checkpoint holds beside tensors: run.json.
struct RunRecord {
  int64_t step = 0;      // steps done, skipped ones included
  int64_t position = 0;  // samples handed out, over all ranks
  // Of the next step, from 1, as the schedule counts them; 0: a checkpoint from before it was kept.
  int64_t epoch = 0;
  int64_t tokens_seen = 0;
  int64_t skipped_in_a_row = 0;
  int64_t parameter_count = 0;
  std::optional<LossScaleState> loss_scale;  // of a run that scales its loss
  std::string last_good_checkpoint;
  std::string mesh = "whole parameters";  // Parallelism::state_text() of the run
  ScheduleState schedule;
  ModelConfig model;
  RunConfig options;
  // Of checkpoints that say so: older ones hold neither tokenizer nor fingerprints.
  std::optional<TokenizerRecord> tokenizer;
  std::optional<TextRecord> training_text;
  std::optional<int64_t> data_ranks;           // that shared each step's windows
  std::optional<double> best_validation_loss;  // with --best_val_loss
  std::string best_checkpoint;                 // name of the checkpoint that has it
  // The run was asked to end before a validation that was due after this step was done.
  bool validation_unfinished = false;
  // With a --loss_spike_policy: the losses of the last steps; how often the job has gone back, and
  // which samples it left out by that, [first, behind the last).
  std::deque<double> loss_history;
  int64_t loss_spike_rewinds = 0;
  std::vector<std::pair<int64_t, int64_t>> skipped_samples;
  // Where another program's checkpoint was, of which this one was made ("" of a run's own): then
  // nothing is known of its data and schedule, and of its options those of the optimizer alone.
  std::string converted_from;
  // The model whose weights the run began with, over all stops and resumes: a directory or a name;
  // "": random ones. None in a checkpoint from before this was kept: its options tell.
  std::optional<std::string> base_model;
};

std::string to_json(const RunRecord& record);
// UserError naming `where` when the text is not such a record.
RunRecord run_record_from_json(std::string_view text, std::string_view where);
// For people: the same record with its options as without_secrets(). UserError as above.
std::string shown_record(std::string_view text, std::string_view where);

struct RecordedRun {
  std::filesystem::path checkpoint;
  RunRecord record;
};
// The newest complete checkpoint at any of the places whose record can be read, as
// newest_of_all() finds it: whoever loads it skips what is damaged, too. UserError where there are
// checkpoints and no record can be read.
std::optional<RecordedRun> newest_recorded_run(std::span<const std::string> places);

// What load_tokenizer() takes for the tokenizer of a checkpoint: the one that it holds or, of an
// old one, the path in its options. UserError when an old one has a path and nothing is there.
std::string tokenizer_of(const std::filesystem::path& checkpoint, const RunRecord& record);

// "num_heads: 4 there, 2 in this run": the first field by which the model of a checkpoint and that
// of a run compute different things from the same weights; "" if there is none. How the weights
// were first drawn, dropout, the padding id and, unless positions are learned, the length of the
// windows do not count.
std::string model_difference(const ModelConfig& checkpoint, const ModelConfig& run);

}  // namespace tessera
