#pragma once
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "hub/parameter_source.h"
#include "models/build_model.h"
#include "options/run_record.h"

namespace tessera {

// The parameters of a checkpoint, whole, whatever ranks wrote it.
class CheckpointParameters : public ParameterSource {
 public:
  // A complete checkpoint. UserError: what open_checkpoint() reports, damaged weights, weights that
  // are not those of the model in its record.
  explicit CheckpointParameters(const std::filesystem::path& checkpoint);

  const RunRecord& record() const { return record_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  // What is read is no mapped memory.
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}

 private:
  std::unique_ptr<CheckpointReader> reader_;
  RunRecord record_;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
