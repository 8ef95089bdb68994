#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "hub/parameter_source.h"
#include "options/run_record.h"
#include "programs/programs.h"

namespace tessera {

// The parameters of a checkpoint, whole: of one process, or put together from the pieces of the
// ranks that wrote it.
class CheckpointParameters : public ParameterSource {
 public:
  // A complete checkpoint. UserError: what CheckpointReader reports, pieces that do not make up the
  // parameters of the model in its record.
  explicit CheckpointParameters(const std::filesystem::path& checkpoint);

  const RunRecord& record() const { return record_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  void read(std::string_view parameter, int64_t first, std::span<float> values) const override;
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override;

 private:
  // Consecutive elements of a parameter in one of the files.
  struct Piece {
    int64_t first = 0, count = 0;
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    int64_t at = 0;  // the element of the tensor where they begin
  };
  void add_rank(const Programs& layout, int rank);
  void put_in_order(const Parameter& parameter);
  // Calls visit(piece, element of the piece, count) for all that make up the range.
  template <class Visitor>
  void for_each_piece(std::string_view parameter, int64_t first, int64_t count,
                      const Visitor& visit) const;

  std::filesystem::path path_;
  std::vector<CheckpointReader> readers_;  // by part
  RunRecord record_;
  std::vector<Parameter> parameters_;
  std::map<std::string, std::vector<Piece>, std::less<>> pieces_;  // ascending
};

}  // namespace tessera
