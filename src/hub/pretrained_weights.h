#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "hub/family_names.h"
#include "hub/parameter_source.h"
#include "hub/weight_files.h"

namespace tessera {

// Weight files that fit a model: every parameter is in them, in f32, bf16 or f16 and with its
// shape.
class PretrainedWeights : public ParameterSource {
 public:
  // Tensors of the files that are no weights are left out, as is
  // the output matrix of a tied model where it equals the embedding. UserError, before any weight
  // is read, that names the files and: all tensors that are missing and all that no parameter
  // stands for (the first five of each), a tensor of another shape or element type with both, a
  // tied output matrix that is not the embedding; and what WeightFiles reports.
  PretrainedWeights(const std::filesystem::path& path, const FamilyNames& family,
                    std::span<const FileTensor> tensors);

  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override;

 private:
  struct Entry {
    StoredTensor stored;
    int64_t rows = 0, columns = 0;  // of the parameter, where it is stored transposed
  };
  std::string name_in_files(const std::string& parameter) const;
  std::string_view head_in_files() const;
  void check_all_there(std::span<const FileTensor> tensors) const;
  Entry entry_of(const FileTensor& tensor) const;
  void check_tied_head(std::span<const FileTensor> tensors) const;
  const Entry& find(std::string_view parameter) const;

  WeightFiles files_;
  FamilyNames family_;
  bool bare_ = false;  // the files lack the family's prefix
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tessera
