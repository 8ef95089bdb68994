#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/ref/interpreter.h"
#include "backends/ref/true_marks.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "ir/rewriter.h"
#include "ops/composite/dropout.h"
#include "passes/document_mask.h"
#include "programs/programs.h"
#include "programs/session.h"
#include "programs/shard_pieces.h"

namespace tessera {

// A training job of N ranks on the reference backend, in lockstep and in f64: the programs that the
// ranks of a real job run, with their state in the hands of the test. Every value of every node is
// held against its marks.
class LockstepJob {
 public:
  // `options` as a session would be built with, in f32: no conversions, all of it becomes f64.
  // `change` is given the model before any pass.
  LockstepJob(const ModelConfig& model, ProgramOptions options, int64_t micro_batches,
              const std::function<ModelGraph(ModelGraph)>& change = std::identity())
      : model_(model),
        rows_(options.batch),
        length_(options.length),
        micro_batches_(micro_batches) {
    TESSERA_CHECK(options.compute == DType::kF32 && options.validation_batch == options.batch &&
                  options.accumulates == (micro_batches > 1));
    options.parallelism.reduce_dtype = DType::kF64;
    programs_ = build_programs(
        [&](int64_t batch, int64_t length, ModelHead head) {
          return change(in_f64(model_builder(model)(batch, length, head)));
        },
        options);
    initialize();
    if (options.loss_scaling)
      state_["loss_scale"].assign(at(world()), {options.loss_scaling->initial});
  }

  const Programs& programs() const { return programs_; }

  // One step on the global batch of step number `step`; every row of it belongs to the job, so a
  // job of other ranks sees the same rows. Returns the mean loss.
  double step(int64_t step) {
    for (int64_t m = 0; m < micro_batches_; ++m) {
      run(programs_.micro_batch(m == 0, m + 1 == micro_batches_).graph, batch(step, m));
    }
    ref::Feeds feeds{{"lr", {{0.01}}}, {"max_norm", {{0.5}}}};
    for (const FlatUnit& unit : programs_.units) {
      if (!unit.trainable) continue;
      for (int rank = 0; rank < world(); ++rank) {
        std::vector<double> begin, decay;
        for (int64_t b : segment_begin(unit, shard_index(rank)))
          begin.push_back(static_cast<double>(b));
        for (int32_t p : unit.parameters)
          decay.push_back(programs_.parameters[static_cast<size_t>(p)].decay ? 0.1 : 0);
        feeds[cat("segment_begin.", unit.name)].push_back(begin);
        feeds[cat("segment_decay.", unit.name)].push_back(decay);
      }
    }
    ref::Results results = run(programs_.apply, feeds);
    norm_ = results.outputs["gradient_norm"][0].data[0];
    if (programs_.has_z_loss) z_loss_ = results.outputs["z_loss"][0].data[0];
    return results.outputs["loss"][0].data[0];
  }
  double norm() const { return norm_; }
  double z_loss() const { return z_loss_; }
  // Content of a slot, by rank.
  const std::vector<std::vector<double>>& state(const std::string& slot) const {
    return state_.at(slot);
  }
  int world() const { return programs_.parallelism.mesh.world_size(); }

  // Mean loss of a validation batch.
  double evaluate(int64_t step) {
    ref::Results results = run(programs_.evaluate, batch(step, 0));
    return results.outputs["loss_sum"][0].data[0] / results.outputs["token_count"][0].data[0];
  }

  // The kinds of slot that checkpoints have of a parameter: "weight", "exp_avg" and "exp_avg_sq".
  std::vector<std::string> saved_kinds(const Parameter& parameter) const {
    std::vector<std::string> kinds;
    for (const Slot& slot : saved_slots(*find(parameter).first)) kinds.push_back(slot.kind);
    return kinds;
  }

  // A whole parameter (of a kind of slot) put together from the ranks. It is an error if an element
  // is missing or copies of it differ.
  std::vector<double> whole(const std::string& kind, const Parameter& parameter) const {
    auto [unit, k] = find(parameter);
    std::vector<double> result(at(num_elements(parameter.shape)), NAN);
    for (int rank = 0; rank < world(); ++rank) {
      const std::vector<double>& shard = state_.at(slot_name(kind, unit->name))[at(rank)];
      for (const PieceRange& r : piece_ranges(programs_, *unit, k, rank)) {
        for (int64_t i = 0; i < r.count; ++i) {
          double &known = result[at(r.global + i)], x = shard[at(r.local + i)];
          TESSERA_CHECK(std::isnan(known) || known == x,
                        cat("ranks have different copies of element ", r.global + i, " of ", kind,
                            " of ", parameter.name));
          known = x;
        }
      }
    }
    for (double x : result)
      TESSERA_CHECK(!std::isnan(x), cat("a part of ", parameter.name, " is missing"));
    return result;
  }

  // How many elements of a rank's slots of a unit belong to no parameter (padding of the
  // vocabulary, gaps, ends of units) and are not zero.
  int64_t strays(const FlatUnit& unit, int rank) const {
    std::vector<bool> owned(at(unit.shard_size));
    for (size_t k = 0; k < unit.members.size(); ++k) {
      for (const PieceRange& r : piece_ranges(programs_, unit, k, rank))
        std::fill_n(owned.begin() + r.local, r.count, true);
    }
    int64_t strays = 0;
    for (const Slot& slot : saved_slots(unit)) {
      const std::vector<double>& shard = state_.at(slot.name())[at(rank)];
      for (size_t i = 0; i < shard.size(); ++i) strays += !owned[i] && shard[i] != 0;
    }
    return strays;
  }

  // The same model with all that is f32 in f64.
  static ModelGraph in_f64(const ModelGraph& model) {
    ModelGraph result;
    result.parameters = model.parameters;
    Rewriter rewriter(model.graph, result.graph);
    for (const Node& node : model.graph.nodes()) {
      if (node.op->tier() != Tier::kInput ||
          model.graph.type(node.outputs[0]).dtype != DType::kF32) {
        rewriter.copy(node);
        continue;
      }
      rewriter.enter(node);
      for (const GraphInput& input : model.graph.inputs()) {
        if (input.value == node.outputs[0])
          rewriter.map(input.value,
                       result.graph.input(input.name, input.kind,
                                          {model.graph.shape(input.value), DType::kF64}));
      }
    }
    rewriter.finish();
    if (model.square_sum) result.square_sum = rewriter(model.square_sum);
    return result;
  }

 private:
  std::vector<Slot> saved_slots(const FlatUnit& unit) const {
    std::vector<Slot> slots;
    for (const Slot& slot : programs_.slots)
      if (slot.saved && slot.unit == unit.name) slots.push_back(slot);
    return slots;
  }

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  int shard_index(int rank) const {
    return programs_.parallelism.mesh.index(rank, programs_.parallelism.data.shard);
  }

  std::pair<const FlatUnit*, size_t> find(const Parameter& parameter) const {
    for (const FlatUnit& unit : programs_.units) {
      for (size_t k = 0; k < unit.members.size(); ++k) {
        if (programs_.parameters[at(unit.parameters[k])].name == parameter.name) return {&unit, k};
      }
    }
    throw InternalError(parameter.name);
  }

  void declare(const Graph& graph) {
    for (const GraphInput& input : graph.inputs()) {
      if (input.kind == InputKind::kState)
        state_.try_emplace(input.name, at(world()),
                           std::vector<double>(at(graph.type(input.value).elements())));
    }
  }

  void initialize() {
    for (const Graph* g : {&programs_.accumulate_first, &programs_.apply, &programs_.evaluate})
      declare(*g);
    for (const FlatUnit& unit : programs_.units) {
      for (size_t k = 0; k < unit.members.size(); ++k) {
        const Parameter& p = programs_.parameters[at(unit.parameters[k])];
        for (int rank = 0; rank < world(); ++rank) {
          std::vector<double>& shard = state_.at(weight_slot(unit))[at(rank)];
          for (const PieceRange& r : piece_ranges(programs_, unit, k, rank)) {
            for (int64_t i = 0; i < r.count; ++i) {
              double x = random_normal(11, stream_of(p.name), static_cast<uint64_t>(r.global + i));
              shard[at(r.local + i)] = p.init.kind == InitKind::kOnes ? 1 + 0.1 * x : 0.25 * x;
            }
          }
        }
      }
    }
  }

  // Row r of micro-batch m of a step is row number (m * data ranks + data rank) * rows + r of it.
  ref::Feeds batch(int64_t step, int64_t micro) const {
    ref::Feeds feeds;
    for (int rank = 0; rank < world(); ++rank) {
      std::vector<double> tokens, targets, starts;
      const Parallelism& p = programs_.parallelism;
      int64_t first = (micro * p.data_ranks() + p.data_rank(rank)) * rows_;
      std::vector<double>& keys = feeds["row_keys"].emplace_back();
      for (int64_t row = first; row < first + rows_; ++row)
        keys.push_back(static_cast<double>(
            dropout_row_key(7, static_cast<uint64_t>(step), static_cast<uint64_t>(row))));
      for (int64_t i = first * length_; i < (first + rows_) * length_; ++i) {
        auto bound = static_cast<uint64_t>(model_.vocab_size);
        auto key = static_cast<uint64_t>(step * 1000003 + i);
        tokens.push_back(static_cast<double>(random_below(1, 0, key, bound)));
        targets.push_back(i % 7 == 3 ? kIgnoreIndex
                                     : static_cast<double>(random_below(2, 0, key, bound)));
      }
      // Documents of 2 to 5 tokens.
      for (int64_t i = first * length_; i < (first + rows_) * length_; ++i) {
        int64_t t = i % length_, document = 2 + (i / length_ + step) % 4;
        starts.push_back(static_cast<double>(t - t % document));
      }
      feeds[kDocumentStarts].push_back(starts);
      feeds["tokens"].push_back(tokens);
      feeds["targets"].push_back(targets);
    }
    return feeds;
  }

  ref::Results run(const Graph& program, ref::Feeds feeds) {
    for (const GraphInput& input : program.inputs()) {
      if (input.kind == InputKind::kState) feeds[input.name] = state_.at(input.name);
      if (input.name != kStopRequests) continue;
      for (int rank = 0; rank < world(); ++rank) feeds[input.name].push_back({rank == 1 ? 1.0 : 0});
    }
    ref::Results results = ref::run(program, feeds, ref::true_marks());
    if (feeds.contains(kStopRequests)) {
      for (const ref::Tensor& heard : results.outputs.at(kStopRequests))
        TESSERA_CHECK(heard.data[0] == 1, "every rank hears of the one that was asked to stop");
    }
    for (const auto& [slot, ranks] : results.updates) {
      state_.try_emplace(slot, at(world()));
      for (int rank = 0; rank < world(); ++rank) state_[slot][at(rank)] = ranks[at(rank)].data;
    }
    return results;
  }

  ModelConfig model_;
  int64_t rows_, length_, micro_batches_;
  Programs programs_;
  std::map<std::string, std::vector<std::vector<double>>> state_;
  double norm_ = 0, z_loss_ = 0;
};

}  // namespace tessera
