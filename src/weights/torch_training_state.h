#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/meta_llama.h"
#include "hub/parameter_source.h"
#include "hub/saved_state.h"
#include "models/build_model.h"

namespace tessera {

// The weights of a model, and what its optimizer keeps, in a state that PyTorch saved: found by the
// names that they end in, whatever stands before ("model.", "app.model.", nothing) and whatever
// wrappers left in the middle ("_orig_mod.", "module.").
//
// Names are those of transformers' models, with or without their family's prefix, or of a Llama
// those of Meta's programs and torchtitan, or of foundation-model-stack, whose rows of queries and
// keys stand in another order. torchtitan since 0.3 keeps moments of the matrix that it computes
// with, queries, keys and values in one, and weights of three. Matrices of a GPT-2 are
// transformers' [in, out] or nanoGPT's [out, in].
class TorchTrainingState : public ParameterSource {
 public:
  // `parameters` are all of the model. UserError: what SavedState reports; weights that are missing
  // (the first five), of another shape or of another type than f32, bf16 and f16, with both;
  // weights beside them that the model does not have; several sets of weights ("ema.") of which
  // none is the model's by its name.
  TorchTrainingState(const std::filesystem::path& path, const ModelConfig& model,
                     std::vector<Parameter> parameters);

  // The optimizer, by what it keeps of a parameter.
  struct Optimizer {
    std::string name;                 // of --optimizer
    std::vector<std::string> kinds;   // "exp_avg", "exp_avg_sq"
    int64_t steps = 0;                // that were applied
    std::vector<std::string> frozen;  // parameters of which it keeps nothing
  };
  // UserError: none is there; it keeps something of some parameters only, in part or in another
  // shape; it counts other steps for one parameter than for another, or none.
  Optimizer find_optimizer();

  // Numbers of its param_groups: distinct values of a setting ("lr", "betas"), in the order in
  // which they come; a list is one value.
  std::vector<std::vector<double>> settings(std::string_view name) const;

  // Of an item that is one number above 0, which is taken over then.
  std::optional<int64_t> take_count(const std::string& name);

  // What is in it besides: "lr_scheduler.last_epoch", by name, without what the settings are.
  std::vector<std::string> left_out() const;

  const SavedState& state() const { return state_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
  // The same of what the optimizer keeps, in the parameter's shape.
  void read_kept(std::string_view kind, std::string_view parameter, int64_t first,
                 std::span<float> values) const;

 private:
  // Where the state has a parameter.
  struct Place {
    std::string name;  // of the tensor, without what stands before
    int64_t first_row = 0;
    int64_t rows = 0;          // of the tensor, where it has other parameters below or above, too
    bool interleaved = false;  // meta_llama.h
    // Where others are between its rows as well: so many of its own, every so many.
    int64_t run = 0, period = 0;

    int64_t row(int64_t r) const { return first_row + (run ? r / run * period + r % run : r); }
  };
  struct Naming {
    std::vector<Place> places;  // by parameter
    std::vector<Place> kept;    // of what the optimizer keeps; empty: as the weights
    std::string head;           // name of the output matrix
    bool transposed = true;     // matrices that transformers' model has so
  };
  std::vector<Naming> namings() const;
  std::optional<Naming> meta_naming(MetaForm form) const;
  std::optional<Naming> fms_naming() const;
  void fuse_kept(Naming& naming) const;
  const Place& kept_place(size_t i) const;
  size_t number_of(const Parameter& p) const;
  const Parameter& parameter(std::string_view name) const;
  const SavedTensor* find(std::string_view plain_name);
  std::vector<std::string> prefixes_of(std::string_view ending) const;
  std::string chosen_of(const std::vector<std::string>& prefixes) const;
  void find_weights();
  void check_tied_head(const std::string& head);
  void refuse_other_weights(std::string_view prefix) const;
  void check_shape(const std::string& name, const SavedTensor& tensor, const Parameter& p,
                   const Place& place) const;
  int64_t steps_of(const std::string& prefix, const std::vector<bool>& trained);
  void read(const SavedTensor& tensor, const Parameter& p, const Place& place, int64_t first,
            std::span<float> values) const;

  SavedState state_;
  ModelConfig model_;
  std::vector<Parameter> parameters_;
  std::map<std::string, std::string, std::less<>> saved_name_of_;  // of names without wrappers
  Naming naming_;
  std::string optimizer_prefix_;  // what stands before "state.NAME.exp_avg"
  std::map<std::string, const SavedTensor*, std::less<>> weights_, kept_;  // "NAME", "NAME.exp_avg"
  std::set<std::string, std::less<>> used_;  // names of tensors as the state has them
};

// Whether the weights of a model are to be read by it: of a checkpoint of
// torch.distributed.checkpoint, or of a file of torch.save in which they are in a dict of their own
// ("model", "state_dict").
bool is_training_state(const std::filesystem::path& path, ModelType family);

}  // namespace tessera
