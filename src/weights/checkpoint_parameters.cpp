#include "weights/checkpoint_parameters.h"

#include "base/element_types.h"
#include "models/build_model.h"
#include "weights/open_checkpoint.h"

namespace tessera {

CheckpointParameters::CheckpointParameters(const std::filesystem::path& checkpoint)
    : reader_(open_checkpoint(checkpoint)), record_(record_of(*reader_)) {
  parameters_ = build_model(record_.model, 1, 1, ModelHead::kLoss).parameters;
  std::vector<StateTarget> wanted;
  for (const Parameter& p : parameters_) {
    const ManifestTensor* tensor = reader_->find(p.name);
    if (!tensor || tensor->shape != p.shape || !is_weight_dtype(tensor->dtype)) {
      throw UserError(
          cat("checkpoint '", checkpoint.string(), "' does not fit its record: it should have '",
              p.name, "' with shape ", to_string(p.shape),
              tensor ? cat(", it has ", name(tensor->dtype), " ", to_string(tensor->shape))
                     : std::string()));
    }
    wanted.push_back({p.name, tensor->dtype, p.shape, whole_box(p.shape), {}});
  }
  reader_->verify(wanted);
}

void CheckpointParameters::read(std::string_view parameter, int64_t first,
                                std::span<float> values) const {
  const ManifestTensor* tensor = reader_->find(parameter);
  TESSERA_CHECK(tensor, cat("the checkpoint has no '", parameter, "'"));
  const auto count = static_cast<int64_t>(values.size());
  const auto element = static_cast<size_t>(size_of(tensor->dtype));
  for (const TensorBox& box : boxes_of_range(tensor->shape, first, count)) {
    std::span<float> part = values.first(static_cast<size_t>(box.elements()));
    values = values.subspan(part.size());
    reader_->read(*tensor, box, [&](int64_t at, std::span<const std::byte> content) {
      to_f32(tensor->dtype, content.data(),
             part.subspan(static_cast<size_t>(at), content.size() / element));
    });
  }
}

}  // namespace tessera
