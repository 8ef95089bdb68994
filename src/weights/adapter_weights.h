#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hub/parameter_source.h"
#include "hub/pretrained_weights.h"
#include "models/build_model.h"

namespace tessera {

// Between the adapters of a model (nn/lora.h) and files.

// The parameters that a model has without its adapters, and those that are its adapters.
std::vector<Parameter> base_parameters(const std::vector<Parameter>& parameters);
std::vector<Parameter> adapter_parameters(const std::vector<Parameter>& parameters);

// The adapters among them as PEFT's files hold them.
std::vector<FileTensor> adapter_tensors(ModelType family, const std::vector<Parameter>& parameters);

// The adapters of a model from a directory as PEFT saves it, by the names of parameters. UserError,
// before any weight is read, as PretrainedWeights: tensors that are missing, too many or of another
// shape.
class AdapterWeights : public ParameterSource {
 public:
  AdapterWeights(const std::filesystem::path& directory, const ModelConfig& model,
                 const std::vector<Parameter>& parameters);
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override;

 private:
  PretrainedWeights weights_;
};

// All parameters of a model with adapters, which come from elsewhere than the others.
class AdaptedWeights : public ParameterSource {
 public:
  AdaptedWeights(std::shared_ptr<const ParameterSource> base,
                 std::shared_ptr<const ParameterSource> adapters)
      : base_(std::move(base)), adapters_(std::move(adapters)) {}
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override;

 private:
  std::shared_ptr<const ParameterSource> base_, adapters_;
};

// The parameters of the model without adapters that computes the same: W + scale B A in the place
// of each W that is adapted. Sums of products in f32, in the order of the rank.
class MergedWeights : public ParameterSource {
 public:
  // `source`, which must outlive it, has all parameters of the model.
  MergedWeights(const ParameterSource& source, const ModelConfig& model,
                const std::vector<Parameter>& parameters);
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override;

 private:
  struct Factors {
    std::string matrix;       // the parameter that they change
    std::vector<float> a, b;  // [rank, in], [out, rank]
  };
  struct Shapes {
    int64_t in = 0, out = 0;
  };
  std::shared_ptr<const Factors> factors_of(const std::string& matrix, const Shapes& shapes) const;

  const ParameterSource& source_;
  Lora lora_;
  std::map<std::string, Shapes, std::less<>> adapted_;  // by the names of matrices
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Factors> last_;  // matrices are read one after another
};

}  // namespace tessera
