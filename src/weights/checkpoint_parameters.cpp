#include "weights/checkpoint_parameters.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

CheckpointParameters::CheckpointParameters(const std::filesystem::path& checkpoint)
    : path_(checkpoint) {
  CheckpointGroup group;
  group.parts = checkpoint_parts(checkpoint);
  for (group.part = 0; group.part < group.parts; ++group.part)
    readers_.emplace_back(checkpoint, group);
  if (readers_.empty())
    throw UserError(cat("checkpoint '", path_.string(), "' has no file of weights"));
  record_ =
      run_record_from_json(readers_[0].run_json(), (checkpoint / std::string(kRunName)).string());
  Programs layout = layout_of(record_, group.parts);
  if (layout.parallelism.state_text() != record_.mesh) {
    throw UserError(cat("checkpoint '", path_.string(), "' has ", group.parts,
                        " parts, its record says ", record_.mesh, ": it is damaged"));
  }
  parameters_ = layout.parameters;
  for (int rank = 0; rank < group.parts; ++rank) add_rank(layout, rank);
  for (const Parameter& p : parameters_) put_in_order(p);
}

// The tensor of a rank holds its ranges one after another: see Session::checkpoint_buffers().
void CheckpointParameters::add_rank(const Programs& layout, int rank) {
  const SafetensorsFile& file = readers_[static_cast<size_t>(rank)].state();
  for (const FlatUnit& unit : layout.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      std::vector<PieceRange> ranges = piece_ranges(layout, unit, k, rank);
      if (ranges.empty()) continue;
      const Parameter& p = layout.parameters[static_cast<size_t>(unit.parameters[k])];
      const TensorInfo* tensor = file.find(p.name);
      int64_t begin = ranges.front().local, end = ranges.back().local + ranges.back().count;
      if (!tensor || tensor->dtype != DType::kF32 || num_elements(tensor->shape) != end - begin) {
        throw UserError(
            cat("checkpoint '", path_.string(), "' does not fit its record: part ", rank + 1,
                " should have ", end - begin, " elements of '", p.name, "' in f32",
                tensor ? cat(", it has ", name(tensor->dtype), " ", to_string(tensor->shape))
                       : std::string()));
      }
      for (const PieceRange& r : ranges)
        pieces_[p.name].push_back({r.global, r.count, &file, tensor, r.local - begin});
    }
  }
}

// Ranks of a tensor-parallel group have copies of what is not cut.
void CheckpointParameters::put_in_order(const Parameter& parameter) {
  std::vector<Piece>& pieces = pieces_[parameter.name];
  std::ranges::stable_sort(pieces, {}, &Piece::first);
  pieces.erase(std::unique(pieces.begin(), pieces.end(),
                           [](const Piece& a, const Piece& b) { return a.first == b.first; }),
               pieces.end());
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    TESSERA_CHECK(piece.first == end, cat("a piece of ", parameter.name, " is missing"));
    end += piece.count;
  }
  TESSERA_CHECK(end == num_elements(parameter.shape), parameter.name);
}

template <class Visitor>
void CheckpointParameters::for_each_piece(std::string_view parameter, int64_t first, int64_t count,
                                          const Visitor& visit) const {
  auto found = pieces_.find(parameter);
  TESSERA_CHECK(found != pieces_.end(), cat("the checkpoint has no '", parameter, "'"));
  auto piece = std::ranges::upper_bound(found->second, first, {}, &Piece::first) - 1;
  for (int64_t end = first + count; first < end; ++piece) {
    int64_t in_piece = first - piece->first, n = std::min(piece->count - in_piece, end - first);
    visit(*piece, in_piece, n);
    first += n;
  }
}

void CheckpointParameters::read(std::string_view parameter, int64_t first,
                                std::span<float> values) const {
  float* out = values.data();
  for_each_piece(parameter, first, static_cast<int64_t>(values.size()),
                 [&](const Piece& piece, int64_t begin, int64_t count) {
                   auto bytes = piece.file->bytes(*piece.tensor);
                   std::memcpy(out, bytes.data() + (piece.at + begin) * 4,
                               static_cast<size_t>(count) * 4);
                   out += count;
                 });
}

void CheckpointParameters::advise(std::string_view parameter, int64_t first, int64_t count,
                                  Advice advice) const {
  for_each_piece(parameter, first, count, [&](const Piece& piece, int64_t begin, int64_t n) {
    piece.file->advise(*piece.tensor, static_cast<uint64_t>(piece.at + begin) * 4,
                       static_cast<uint64_t>(n) * 4, advice);
  });
}

}  // namespace tessera
