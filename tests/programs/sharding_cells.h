#pragma once
#include <string>
#include <vector>

#include "tests/programs/covering_array.h"
#include "tests/programs/lockstep_job.h"

namespace tessera {

// What jobs of the sharding tests differ in. A value is what a user would write.
struct Factor {
  struct Level {
    std::string label;      // part of the cell's name; empty for the plain one
    std::string arguments;  // of tessera plan
  };
  std::string name;
  std::vector<Level> levels;
};
const std::vector<Factor>& sharding_factors();
constexpr size_t kModelFactor = 8;  // the index of "model"

// One level a factor. Its name is that of the test: "full_shard_w4_tp2_a3_tied_kv1_ops_far".
using Cell = Row;
std::string name_of(const Cell& cell);
std::string arguments_of(const Cell& cell);

// What the command line of a cell stands for, by the way that `tessera plan` takes. UserError where
// the options do not fit together.
struct CellJob {
  ModelConfig model;
  ProgramOptions options;
  int64_t micro_batches = 1;

  const Parallelism& parallelism() const { return options.parallelism; }
  // The same with everything kept in near memory from the forward to the backward pass.
  CellJob keeping() const;
  // The same rows on one rank.
  CellJob on_one_rank() const;
  // Equal for jobs of the same programs.
  std::string key() const;
};
CellJob job_of(const Cell& cell);

// Name and error of every combination of the factors which make the mesh that cannot be had.
std::vector<std::pair<std::string, std::string>> impossible_meshes();
// Whether a cell, open where it is, is of a mesh that can be had.
bool is_possible(const Cell& cell);
// A pairwise covering array over all factors.
const CoveringArray& covering_cells();
// The meshes that can be had, as cells open in all else, and all combinations of accumulation,
// model, recomputation and offload on one of them. The levels of the other factors are drawn, with
// a fixed seed: all combinations of those too would be 48 times as many.
const std::vector<Cell>& possible_meshes();
std::vector<Cell> cells_of(const Cell& mesh);

// All that can be seen of two steps and a validation batch.
struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> tensors;  // "exp_avg.NAME step 0"
  int64_t strays = 0;
  bool operator==(const Outcome&) const = default;
};
Outcome run(const CellJob& job);

// What of a job of several ranks differs from one rank (losses, norms and gradients by more than
// 1e-12 of the highest element of the tensor, weights and later moments by more than 1e-10), and
// whether any bit differs from the same mesh with everything kept. Empty if all is well.
// What jobs are compared with is kept: all of one rank, the last of a mesh.
class CellChecker {
 public:
  std::string check(const CellJob& job);

 private:
  const Outcome& one_rank(const CellJob& job);
  const Outcome& keeping(const CellJob& job);
  std::map<std::string, Outcome> one_rank_;
  std::pair<std::string, Outcome> keeping_;
};

}  // namespace tessera
