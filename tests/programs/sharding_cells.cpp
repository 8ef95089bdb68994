#include "tests/programs/sharding_cells.h"

#include "base/error.h"
#include "base/hash.h"
#include "options/model_options.h"
#include "options/option_parser.h"

namespace tessera {
namespace {

constexpr size_t kMeshFactors = 4;  // the first ones: options of which some do not fit together
constexpr int64_t kSteps = 2;

constexpr const char* kModel =
    "--model_type llama_v2 --tokenizer byte --vocab_size 37 --hidden_width 16 --num_layers 2 "
    "--num_heads 4 --intermediate_size 24 --max_context_width 8 --initializer_range 0.02 --bf16 0 "
    "--train_batch_size 2 --val_batch_size 2 --ranks_per_host 4";

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

size_t factor_named(std::string_view name) {
  auto found = std::ranges::find(sharding_factors(), name, &Factor::name);
  TESSERA_CHECK(found != sharding_factors().end(), name);
  return static_cast<size_t>(found - sharding_factors().begin());
}

// Each cell, open in this factor, with each of its levels.
std::vector<Cell> with_all_levels(const std::vector<Cell>& cells, std::string_view factor) {
  size_t f = factor_named(factor);
  std::vector<Cell> longer;
  for (const Cell& cell : cells) {
    for (size_t level = 0; level < sharding_factors()[f].levels.size(); ++level) {
      longer.push_back(cell);
      longer.back()[f] = static_cast<int>(level);
    }
  }
  return longer;
}

// Gives each cell one level of this factor, which follows from its other levels as if drawn.
void draw_level(std::vector<Cell>& cells, std::string_view factor) {
  size_t f = factor_named(factor);
  for (Cell& cell : cells) {
    uint64_t key = hash_text(cat(factor, " ", name_of(cell)));
    cell[f] = static_cast<int>(key % sharding_factors()[f].levels.size());
  }
}

std::vector<Cell> mesh_cells() {
  std::vector<Cell> cells{Cell(sharding_factors().size(), -1)};
  for (size_t f = 0; f < kMeshFactors; ++f)
    cells = with_all_levels(cells, sharding_factors()[f].name);
  return cells;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0, highest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    highest = std::max(highest, std::abs(b[i]));
  }
  return highest > 0 ? most / highest : most;
}

}  // namespace

const std::vector<Factor>& sharding_factors() {
  static const std::vector<Factor> factors{
      {"strategy",
       {{"no_shard", "--sharding_strategy no_shard"},
        {"shard_grad_op", "--sharding_strategy shard_grad_op"},
        {"full_shard", "--sharding_strategy full_shard"},
        {"hybrid_shard", "--sharding_strategy hybrid_shard"},
        {"hybrid_zero2", "--sharding_strategy _hybrid_shard_zero2"}}},
      {"world",
       {{"w1", "--world 1"},
        {"w2", "--world 2"},
        {"w3", "--world 3"},
        {"w4", "--world 4"},
        {"w6", "--world 6"},
        {"w8", "--world 8"}}},
      {"tensor parallel",
       {{"", ""}, {"tp2", "--tensor_parallel_degree 2"}, {"tp4", "--tensor_parallel_degree 4"}}},
      {"shard degree", {{"", ""}, {"s2", "--shard_degree 2"}, {"s3", "--shard_degree 3"}}},
      {"accumulation", {{"", ""}, {"a3", "--gradient_accumulation_steps 3"}}},
      {"unsharded", {{"", ""}, {"unsharded", "--unsharded_accumulation 1"}}},
      {"tied", {{"", ""}, {"tied", "--tie_word_embeddings 1"}}},
      {"length", {{"", ""}, {"odd", "--max_context_width 7"}}},  // no sequence parallelism
      {"model",
       {{"kv1", "--num_key_value_heads 1"},
        {"kv2", "--num_key_value_heads 2"},
        {"kv4", "--num_key_value_heads 4"},
        {"mistral", "--model_type mistral --sliding_window 3 --num_key_value_heads 2"},
        {"qwen2", "--model_type qwen2 --num_key_value_heads 2"},
        {"gpt2", "--model_type gpt2 --bias 1 --dropout 0.25"},
        {"neox", "--model_type gpt_neox --rotary_pct 0.5"},
        {"qwen3", "--model_type qwen3 --num_key_value_heads 2"}}},
      {"recompute",
       {{"", "--activation_checkpointing 0"},
        {"layers", "--activation_checkpointing 1"},
        {"ops", "--activation_checkpointing 1 --checkpointing_policy op"},
        {"half", "--activation_checkpointing 1 --selective_checkpointing 0.5"}}},
      {"offload",
       {{"", ""},
        {"offload0", "--offload_activations 1 --activation_loading_horizon 0"},
        {"offload1", "--offload_activations 1 --activation_loading_horizon 1"}}},
      {"far state", {{"", ""}, {"far", "--cpu_offload 1"}}},
      {"documents", {{"", ""}, {"documents", "--document_mask 1"}}},
      {"optimizer", {{"", ""}, {"sgd", "--optimizer sgd --momentum 0.75"}}},
      // By patterns that name parameters of every family. bottom: embeddings (embed_tokens, wte and
      // wpe, embed_in) and the first layer, so that its backward pass is none; of a tied model the
      // head too. parts: of the layers some matrices, and a head that is not tied.
      {"frozen",
       {{"", ""}, {"bottom", "--freeze *.[we][tpm]*,*.0.*"}, {"parts", "--freeze *[djnt].weight"}}},
      {"adapters",
       {{"", ""},
        {"lora", "--lora_rank 3 --lora_targets all-linear --lora_dropout 0.25"},
        {"loras", "--lora_rank 2 --lora_alpha 3 --lora_rank_stabilised 1"}}}};
  return factors;
}

std::string name_of(const Cell& cell) {
  std::vector<std::string> labels;
  for (size_t f = 0; f < cell.size(); ++f) {
    if (cell[f] < 0) continue;
    const std::string& label = sharding_factors()[f].levels[static_cast<size_t>(cell[f])].label;
    if (!label.empty()) labels.push_back(label);
  }
  return join(labels, "_");
}

std::string arguments_of(const Cell& cell) {
  std::string text = kModel;
  for (size_t f = 0; f < cell.size(); ++f) {
    if (cell[f] >= 0)
      text += cat(" ", sharding_factors()[f].levels[static_cast<size_t>(cell[f])].arguments);
  }
  return text;
}

CellJob job_of(const Cell& cell) {
  ParsedOptions parsed = parse_options(words_of(arguments_of(cell)), OptionScope::kPlan,
                                       [](const char*) { return std::nullopt; });
  const RunConfig& config = parsed.config;
  CellJob job{resolve_model(parsed), {}, config.gradient_accumulation_steps};
  Parallelism parallelism =
      make_parallelism(config, job.model, config.world.value(), config.ranks_per_host);
  job.options = program_options(config, parallelism);
  return job;
}

CellJob CellJob::keeping() const {
  CellJob job = *this;
  job.options.residency = {};
  job.options.far_state = false;
  return job;
}

CellJob CellJob::on_one_rank() const {
  CellJob job = keeping();
  job.options.parallelism = {};
  job.options.batch *= parallelism().data_ranks();
  job.options.validation_batch = job.options.batch;
  return job;
}

std::string CellJob::key() const {
  const Parallelism& p = parallelism();
  const ResidencyOptions& r = options.residency;
  const Lora& l = model.lora;
  return cat(name(model.model_type), " ", model.num_key_value_heads, " ", model.tie_word_embeddings,
             " ", options.batch, " ", options.length, " ", micro_batches, " ", p.to_text(), " ",
             p.sequence_parallel, " ", p.unsharded_accumulation && !p.data.shard.empty(), " ",
             r.share_numerator, "/", r.share_denominator, " ", static_cast<int>(r.policy), " ",
             r.regather, " ", r.offload, " ", r.horizon, " ", options.far_state, " ",
             options.z_loss, " ", join(options.freeze, ","), " ", options.optimizer.name, " ",
             options.document_mask, " ", l.rank, " ", join(l.targets, ","), " ", l.dropout);
}

const std::vector<Cell>& possible_meshes() {
  static const std::vector<Cell> meshes = [] {
    std::set<std::string> impossible;
    for (const auto& [name, error] : impossible_meshes()) impossible.insert(name);
    std::vector<Cell> possible;
    for (const Cell& cell : mesh_cells()) {
      if (!impossible.contains(name_of(cell))) possible.push_back(cell);
    }
    return possible;
  }();
  return meshes;
}

bool is_possible(const Cell& cell) {
  return std::ranges::any_of(possible_meshes(), [&](const Cell& mesh) {
    for (size_t f = 0; f < kMeshFactors; ++f) {
      if (cell[f] >= 0 && cell[f] != mesh[f]) return false;
    }
    return true;
  });
}

std::vector<std::pair<std::string, std::string>> impossible_meshes() {
  std::vector<std::pair<std::string, std::string>> errors;
  for (const Cell& cell : mesh_cells()) {
    try {
      job_of(cell);
    } catch (const UserError& e) {
      errors.emplace_back(name_of(cell), e.what());
    }
  }
  return errors;
}

const CoveringArray& covering_cells() {
  static const CoveringArray array = [] {
    std::vector<int> sizes;
    for (const Factor& factor : sharding_factors())
      sizes.push_back(static_cast<int>(factor.levels.size()));
    return CoveringArray(sizes, is_possible);
  }();
  return array;
}

std::vector<Cell> cells_of(const Cell& mesh) {
  std::vector<Cell> cells{mesh};
  for (const char* name : {"accumulation", "model"}) cells = with_all_levels(cells, name);
  for (const char* name : {"unsharded", "tied", "length", "documents", "frozen", "adapters"})
    draw_level(cells, name);
  for (const char* name : {"recompute", "offload"}) cells = with_all_levels(cells, name);
  for (const char* name : {"far state", "optimizer"}) draw_level(cells, name);
  return cells;
}

Outcome run(const CellJob& job) {
  LockstepJob lockstep(job.model, job.options, job.micro_batches);
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    outcome.losses.push_back(lockstep.step(step));
    outcome.losses.push_back(lockstep.z_loss());
    outcome.norms.push_back(lockstep.norm());
    for (const Parameter& p : lockstep.programs().parameters) {
      for (const std::string& kind : lockstep.saved_kinds(p))
        outcome.tensors[cat(kind, ".", p.name, " step ", step)] = lockstep.whole(kind, p);
    }
  }
  outcome.losses.push_back(lockstep.evaluate(kSteps));
  for (const FlatUnit& unit : lockstep.programs().units) {
    for (int rank = 0; rank < lockstep.world(); ++rank)
      outcome.strays += lockstep.strays(unit, rank);
  }
  return outcome;
}

const Outcome& CellChecker::one_rank(const CellJob& job) {
  auto [entry, fresh] = one_rank_.try_emplace(job.key());
  if (fresh) entry->second = run(job);
  return entry->second;
}

const Outcome& CellChecker::keeping(const CellJob& job) {
  if (keeping_.first != job.key()) keeping_ = {job.key(), run(job)};
  return keeping_.second;
}

std::string CellChecker::check(const CellJob& job) {
  // The first moment after one step is the clipped gradient, for AdamW times 1 - beta1. From then
  // on Adam has divided by roots of sums that are next to nothing for some elements.
  constexpr double kGradientBound = 1e-12, kLaterBound = 1e-10;
  std::string report;
  const Outcome &one = one_rank(job.on_one_rank()), &kept = keeping(job.keeping());
  auto hold = [&](const std::string& what, const std::vector<double>& got,
                  const std::vector<double>& want, double bound) {
    double difference = relative_difference(got, want);
    if (!(difference <= bound)) report += cat(what, " differs by ", difference, "\n");
  };
  hold("loss", kept.losses, one.losses, kGradientBound);
  hold("norm", kept.norms, one.norms, kGradientBound);
  for (const auto& [name, values] : one.tensors) {
    bool gradient = !name.starts_with("weight.") && !name.starts_with("exp_avg_sq.") &&
                    name.ends_with("step 0");
    hold(name, kept.tensors.at(name), values, gradient ? kGradientBound : kLaterBound);
  }
  if (kept.strays > 0) report += cat(kept.strays, " elements of padding are not zero\n");
  if (job.key() != keeping_.first && !(run(job) == kept))
    report += "recomputation, offload or far state changed bits\n";
  return report;
}

}  // namespace tessera
