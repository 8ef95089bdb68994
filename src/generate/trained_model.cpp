#include "generate/trained_model.h"

#include <cstring>
#include <map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "train/run_record.h"
#include "train/shard_pieces.h"
#include "train/training_run.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The weights of a checkpoint. Of several parts each has consecutive elements of the parameters of
// its ranks, as the mesh of the run cut them.
class CheckpointWeights {
 public:
  CheckpointWeights(const fs::path& path, int parts) : path_(path) {
    for (int part = 0; part < parts; ++part) {
      CheckpointGroup group;
      group.part = part;
      group.parts = parts;
      parts_.emplace_back(path, group);
    }
    record_ = run_record_from_json(parts_[0].run_json(), (path / kRunName).string());
    if (parts > 1) find_pieces();
  }
  const RunRecord& record() const { return record_; }

  void read(const std::string& name, const Shape& shape, std::span<float> values) const {
    if (parts_.size() == 1) {
      TensorBuffer whole{name, DType::kF32, shape, values.data()};
      return parts_[0].load_some({&whole, 1});
    }
    auto found = pieces_.find(name);
    if (found == pieces_.end() || found->second.shape != shape) {
      throw UserError(
          cat("checkpoint '", path_.string(), "' has no tensor '", name, "' ", to_string(shape)));
    }
    for (const Piece& piece : found->second.pieces) {
      std::vector<float> elements(static_cast<size_t>(piece.count));
      TensorBuffer flat{name, DType::kF32, {piece.count}, elements.data()};
      parts_[piece.part].load_some({&flat, 1});
      for (const PieceRange& range : piece.ranges) {
        std::memcpy(values.data() + range.global, elements.data() + range.local,
                    static_cast<size_t>(range.count) * sizeof(float));
      }
    }
  }

 private:
  // What one part has of a parameter.
  struct Piece {
    size_t part;
    int64_t count;                   // elements in the file
    std::vector<PieceRange> ranges;  // `local` counts in these
  };
  struct Pieces {
    Shape shape;
    std::vector<Piece> pieces;
  };

  void find_pieces() {
    auto parts = static_cast<int64_t>(parts_.size());
    // Without the ranks that had copies, a part is a rank.
    Parallelism parallelism = make_parallelism(record_.options, record_.model, parts, parts);
    if (parallelism.state_text() != record_.mesh) {
      throw UserError(cat("checkpoint '", path_.string(), "' was saved with ", record_.mesh,
                          ", but has ", parts, " parts: it is damaged, use another one"));
    }
    Programs programs =
        build_programs(model_builder(record_.model), program_options(record_.options, parallelism));
    for (const FlatUnit& unit : programs.units) {
      for (size_t k = 0; k < unit.members.size(); ++k) {
        const Parameter& p = programs.parameters[static_cast<size_t>(unit.parameters[k])];
        Pieces& of = pieces_[p.name];
        of.shape = p.shape;
        for (size_t part = 0; part < parts_.size(); ++part) {
          Piece piece{part, 0, piece_ranges(programs, unit, k, static_cast<int>(part))};
          if (piece.ranges.empty()) continue;
          int64_t begin = piece.ranges.front().local;
          for (PieceRange& range : piece.ranges) range.local -= begin;
          piece.count = piece.ranges.back().local + piece.ranges.back().count;
          of.pieces.push_back(std::move(piece));
        }
      }
    }
  }

  fs::path path_;
  std::vector<CheckpointReader> parts_;
  RunRecord record_;
  std::map<std::string, Pieces> pieces_;
};

}  // namespace

TrainedModel open_trained_model(const fs::path& path) {
  auto found = newest_complete_checkpoint(path);
  if (!found) throw UserError(cat("there is no complete checkpoint in '", path.string(), "'"));
  auto weights = std::make_shared<CheckpointWeights>(*found, checkpoint_parts(*found));
  const RunRecord& record = weights->record();
  TrainedModel model;
  model.path = *found;
  model.model = record.model;
  model.window = record.options.max_context_width;
  model.compute = record.options.bf16 ? DType::kBF16 : DType::kF32;
  model.tokenizer = record.options.tokenizer;
  model.read = [weights](const std::string& name, const Shape& shape, std::span<float> values) {
    weights->read(name, shape, values);
  };
  return model;
}

}  // namespace tessera
