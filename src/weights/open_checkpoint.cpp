#include "weights/open_checkpoint.h"

#include <algorithm>
#include <map>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "models/build_model.h"
#include "programs/shard_pieces.h"

namespace tessera {
namespace {

// Of a job that keeps what the checkpoint holds, without copies of it.
Programs layout_of(const RunRecord& record, int parts) {
  RunConfig config = record.options;
  config.sharding_strategy = "full_shard";
  config.shard_degree = std::max<int64_t>(1, parts / config.tensor_parallel_degree);
  ProgramOptions options =
      program_options(config, make_parallelism(config, record.model, parts, parts));
  options.batch = 1;
  options.passes = {};
  return build_state_layout(model_builder(record.model), options);
}

// Version 1: of one process tensors were whole, of several each had its piece of every parameter in
// one tensor, flat, and all a file of the same names. Nothing but the mesh said what it was a piece
// of.
class FirstVersion {
 public:
  explicit FirstVersion(const CheckpointReader& checkpoint)
      : checkpoint_(checkpoint), record_(record_of(checkpoint)) {
    const std::vector<ManifestFile>& files = checkpoint.manifest().files;
    for (size_t i = 0; i < files.size(); ++i)
      if (files[i].name.starts_with("state")) files_.push_back(i);
    if (files_.empty())
      throw UserError(cat("checkpoint '", checkpoint.path().string(), "' has no file of weights"));
    std::ranges::sort(files_, {}, [&](size_t i) { return files[i].name; });
  }

  std::vector<ManifestTensor> tensors() {
    const int parts = static_cast<int>(files_.size());
    Programs layout = layout_of(record_, parts);
    if (layout.parallelism.state_text() != record_.mesh) {
      throw UserError(cat("checkpoint '", checkpoint_.path().string(), "' has ", parts,
                          " parts, its record says ", record_.mesh, ": it is damaged"));
    }
    for (int part = 0; part < parts; ++part) add_part(layout, part);
    std::vector<ManifestTensor> all;
    for (auto& [name, tensor] : tensors_) all.push_back(std::move(tensor));
    return all;
  }

 private:
  struct Kind {
    std::string prefix, name;  // "moment1.", "exp_avg"
  };

  std::vector<Kind> kinds() const {
    if (record_.options.optimizer == "adamw")
      return {{"moment1.", "exp_avg"}, {"moment2.", "exp_avg_sq"}};
    if (record_.options.optimizer == "lion") return {{"momentum.", "exp_avg"}};
    return {{"momentum.", "momentum_buffer"}};
  }

  void add_part(const Programs& layout, int part) {
    const size_t index = files_[static_cast<size_t>(part)];
    SafetensorsFile file(checkpoint_.path() / checkpoint_.manifest().files[index].name);
    if (const TensorInfo* steps = file.find(kOptimizerStep); steps && part == 0) {
      tensors_[kOptimizerStep] = {kOptimizerStep,
                                  TensorRole::kCounter,
                                  steps->dtype,
                                  steps->shape,
                                  {{index, steps->offset, {}, {}}}};
    }
    for (const FlatUnit& unit : layout.units) {
      for (size_t k = 0; k < unit.members.size(); ++k) {
        if (is_copy(layout, unit, k, part)) continue;
        const Parameter& p = layout.parameters[static_cast<size_t>(unit.parameters[k])];
        std::vector<PieceRange> ranges = piece_ranges(layout, unit, k, part);
        if (ranges.empty()) continue;
        add_ranges(p, p.name, TensorRole::kWeight, ranges, index, file.find(p.name));
        for (const Kind& kind : kinds()) {
          if (const TensorInfo* stored = file.find(kind.prefix + p.name)) {
            add_ranges(p, cat("optim.state.", p.name, ".", kind.name), TensorRole::kMoment, ranges,
                       index, stored);
          }
        }
      }
    }
  }

  // The tensor of a part holds its ranges one after another.
  void add_ranges(const Parameter& p, const std::string& name, TensorRole role,
                  const std::vector<PieceRange>& ranges, size_t file, const TensorInfo* stored) {
    int64_t begin = ranges.front().local, end = ranges.back().local + ranges.back().count;
    if (!stored || num_elements(stored->shape) != end - begin) {
      throw UserError(cat("checkpoint '", checkpoint_.path().string(),
                          "' does not fit its record: '", checkpoint_.manifest().files[file].name,
                          "' should have ", end - begin, " elements of '", name, "'"));
    }
    auto [found, fresh] = tensors_.try_emplace(name);
    ManifestTensor& tensor = found->second;
    if (fresh) tensor = {name, role, stored->dtype, p.shape, {}};
    for (const PieceRange& range : ranges) {
      uint64_t offset =
          stored->offset + static_cast<uint64_t>((range.local - begin) * size_of(stored->dtype));
      for (TensorBox& box : boxes_of_range(p.shape, range.global, range.count)) {
        auto bytes = static_cast<uint64_t>(box.elements() * size_of(stored->dtype));
        tensor.boxes.push_back({file, offset, std::move(box), {}});
        offset += bytes;
      }
    }
  }

  const CheckpointReader& checkpoint_;
  RunRecord record_;
  std::vector<size_t> files_;  // of parts, indices into the manifest
  std::map<std::string, ManifestTensor> tensors_;
};

}  // namespace

RunRecord record_of(const CheckpointReader& checkpoint) {
  return run_record_from_json(checkpoint.run_json(), (checkpoint.path() / kRunName).string());
}

std::string shown_record_of(const CheckpointReader& checkpoint) {
  return shown_record(checkpoint.run_json(), (checkpoint.path() / kRunName).string());
}

std::unique_ptr<CheckpointReader> open_checkpoint(const std::filesystem::path& checkpoint) {
  auto reader = std::make_unique<CheckpointReader>(checkpoint);
  if (reader->manifest().version > 1) return reader;
  reader->verify_files();
  reader->set_tensors(FirstVersion(*reader).tensors());
  return reader;
}

}  // namespace tessera
