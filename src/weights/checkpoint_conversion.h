#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/model_config.h"
#include "options/run_record.h"

namespace tessera {

// Training states that go between this program and PyTorch.

// Hears of bytes written and to be written.
using ConversionProgress = std::function<void(int64_t done, int64_t total)>;

struct FromTorch {
  std::filesystem::path from;  // what SavedState takes
  std::filesystem::path to;    // a directory of checkpoints that is made, or is empty
  ModelConfig model;
  RunConfig config;       // for the record; what the state says of its optimizer is put in
  std::string tokenizer;  // as --tokenizer names it, to go into the checkpoint; "": none
  int64_t position = 0;   // samples of the job's order that were learned
  ConversionProgress progress = {};
};

struct ConvertedCheckpoint {
  std::filesystem::path path;
  RunRecord record;
  // "--lr 0.0003": the options that the optimizer's settings are.
  std::vector<std::string> options;
  // What the user should know: settings that this program does not have.
  std::vector<std::string> warnings;
  std::vector<std::string> left_out;  // names in the state that were not taken over
};

// Writes `{to}/{model_type}-{step}steps`, with which --resume_from_checkpoint goes on. Weights and
// what the optimizer keeps become f32. UserError: what TorchTrainingState reports, a directory that
// holds something, a full disk. Nothing is left where it fails or is interrupted.
ConvertedCheckpoint convert_from_torch(const FromTorch& job);

// Writes a directory that torch.distributed.checkpoint loads as {"model": ..., "optim": ...}:
//   model.NAME; optim.state.NAME.exp_avg and so on; optim.param_groups, both by group and by name
//   (flatten_optimizer_state_dict); config.json of the model beside it.
// Tensors are cut into chunks by rows. `checkpoint` is a complete one. UserError: a damaged
// checkpoint, one with adapters, a directory that holds something, a full disk. Nothing is left
// where it fails or is interrupted.
void convert_to_torch(const std::filesystem::path& checkpoint, const std::filesystem::path& to,
                      const ConversionProgress& progress = {});

// UserError that says how to convert it, if a checkpoint of torch.distributed.checkpoint is what
// somebody wants to go on with: the directory or the newest one in it.
void refuse_torch_checkpoint(const std::filesystem::path& directory);

}  // namespace tessera
