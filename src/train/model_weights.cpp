#include "train/model_weights.h"

#include "models/hugging_face_tensor.h"
#include "models/model_family.h"
#include "train/shard_pieces.h"

namespace tessera {

FamilyNames family_names(ModelType family) {
  const TensorNames& names = model_family(family).tensors;
  return {hugging_face_model_type(family), names.prefix, names.embedding, names.output,
          names.buffers};
}

std::vector<FileTensor> file_tensors(ModelType family, const std::vector<Parameter>& parameters) {
  std::vector<FileTensor> tensors;
  for (const Parameter& p : parameters) {
    HuggingFaceTensor stored = hugging_face_tensor(family, p);
    tensors.push_back({p.name, stored.shape, stored.transposed});
  }
  return tensors;
}

std::vector<ParameterTarget> weight_targets(const Programs& programs, const State& state,
                                            int rank) {
  std::vector<ParameterTarget> targets;
  for (const FlatUnit& unit : programs.units) {
    auto* weights = state.as<float>(weight_slot(unit));
    for (size_t k = 0; k < unit.members.size(); ++k) {
      ParameterTarget& target = targets.emplace_back();
      target.parameter = programs.parameters[static_cast<size_t>(unit.parameters[k])].name;
      for (const PieceRange& range : piece_ranges(programs, unit, k, rank))
        target.ranges.push_back({range.global, range.count, weights + range.local});
    }
  }
  return targets;
}

std::vector<ParameterTarget> weight_targets(const std::vector<Parameter>& parameters,
                                            const std::vector<FlatUnit>& units,
                                            const State& state) {
  std::vector<ParameterTarget> targets;
  for (const FlatUnit& unit : units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = parameters[static_cast<size_t>(unit.parameters[k])];
      float* data = state.as<float>(weight_slot(unit)) + unit.members[k].offset;
      targets.push_back({p.name, {{0, num_elements(p.shape), data}}});
    }
  }
  return targets;
}

}  // namespace tessera
