#include "base/text.h"
#include "models/model_family.h"
#include "options/option_table_groups.h"

// Model, data, validation.
namespace tessera::option_groups {
namespace {
constexpr std::string_view kNoExperts = "it concerns experts, which are not built yet";

std::vector<OptionValue> families() {
  std::vector<OptionValue> values;
  for (const ModelFamily* family : kModelFamilies)
    values.push_back({.name = family->name, .built = family->build != nullptr});
  return values;
}

std::vector<OptionRow> shape() {
  static const std::string presets =
      cat("a published model: ", join(preset_names(), ", "), "; options given beside it win");
  return {
      {.name = "model_type",
       .field = &RunConfig::model_type,
       .help = "family",
       .values = families(),
       .on_resume = kRefused},
      {.name = "model_name",
       .field = &RunConfig::model_name,
       .help = presets,
       .on_resume = kRefused},
      {.name = "model_size",
       .field = &RunConfig::model_size,
       .help =
           "shape of model_type: 7b, 13b, 70b, or for gpt_neox 20b, 65b; options given beside it "
           "win",
       .on_resume = kRefused},
      {.name = "model_config",
       .field = &RunConfig::model_config,
       .help = "a Hugging Face config.json or the directory with it, in place of the shape options",
       .on_resume = kRefused},
      {.name = "max_context_width",
       .aliases = {"block_size", "seq_len", "seq_length"},
       .field = &RunConfig::max_context_width,
       .help = "positions of the model and of the data window",
       .minimum = 1,
       .on_resume = kWarned},
      {.name = "vocab_size",
       .field = &RunConfig::vocab_size,
       .help =
           "rows of the embedding; fewer than texts need is an error, more than the tokenizer has, "
           "or fewer for special tokens at its end alone, a warning; "
           "where it is not given and a meta.pkl lies beside the data's train.bin, what that says",
       .minimum = 1,
       .scopes = kRunScopes | in(OptionScope::kTokenizer),
       .on_resume = kRefused},
      {.name = "hidden_width",
       .aliases = {"n_embd"},
       .field = &RunConfig::hidden_width,
       .help = "width of the model, divisible by num_heads",
       .minimum = 1,
       .on_resume = kRefused},
      {.name = "num_layers",
       .aliases = {"n_layer"},
       .field = &RunConfig::num_layers,
       .help = "decoder layers",
       .minimum = 1,
       .on_resume = kRefused},
      {.name = "num_heads",
       .aliases = {"n_head"},
       .field = &RunConfig::num_heads,
       .help = "attention heads",
       .minimum = 1,
       .on_resume = kRefused},
      {.name = "num_key_value_heads",
       .field = &RunConfig::num_key_value_heads,
       .help = "grouped-query heads",
       .minimum = 1,
       .unset = "num_heads",
       .on_resume = kRefused},
      {.name = "head_dim",
       .field = &RunConfig::head_dim,
       .help = "elements of a head, for families like Llama",
       .minimum = 1,
       .unset = "hidden_width / num_heads",
       .on_resume = kRefused},
      {.name = "intermediate_size",
       .aliases = {"llama_intermediate_size"},
       .field = &RunConfig::intermediate_size,
       .help = "width of the MLP; gpt_neox and gpt2 use 4 x hidden_width",
       .minimum = 1,
       .on_resume = kRefused},
      {.name = "tie_word_embeddings",
       .field = &RunConfig::tie_word_embeddings,
       .help = "one matrix for the embedding and the output; always so in gpt2",
       .on_resume = kRefused},
      {.name = "initializer_range",
       .field = &RunConfig::initializer_range,
       .help = "standard deviation of the normal initialisation",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "sliding_window",
       .field = &RunConfig::sliding_window,
       .help = "mistral, mixtral: positions that a token sees",
       .minimum = 1,
       .on_resume = kRefused},
  };
}

std::vector<OptionRow> family_options() {
  return {
      {.name = "rotary_pct",
       .field = &RunConfig::rotary_pct,
       .help = "gpt_neox: share of each head that rotates",
       .minimum = 0,
       .maximum = 1,
       .on_resume = kRefused},
      {.name = "rotary_emb_base",
       .field = &RunConfig::rotary_emb_base,
       .help = "gpt_neox: base of the rotary frequencies",
       .minimum = 1,
       .on_resume = kRefused},
      {.name = "num_experts_per_tok",
       .field = &RunConfig::num_experts_per_tok,
       .help = "mixtral: experts that a token passes through",
       .minimum = 1,
       .status = kNotBuilt},
      {.name = "num_local_experts",
       .field = &RunConfig::num_local_experts,
       .help = "mixtral: experts of a layer",
       .minimum = 1,
       .status = kNotBuilt},
      {.name = "moe",
       .field = &RunConfig::moe,
       .help = "mixtral: distribute experts over ranks",
       .status = kNotBuilt},
      {.name = "moe_load_balancing",
       .field = &RunConfig::moe_load_balancing,
       .help = "mixtral: how tokens are balanced",
       .status = kNoEffect,
       .reason = kNoExperts},
      {.name = "moe_all_to_all_dispatcher",
       .field = &RunConfig::moe_all_to_all_dispatcher,
       .help = "mixtral: dispatch tokens by all-to-all",
       .status = kNoEffect,
       .reason = kNoExperts},
      {.name = "global_token_shuffle",
       .field = &RunConfig::global_token_shuffle,
       .help = "mixtral: shuffle tokens over ranks",
       .status = kNoEffect,
       .reason = kNoExperts},
      {.name = "resid_pdrop",
       .field = &RunConfig::resid_pdrop,
       .help = "gpt2: dropout on what enters the residual stream, in training",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "embd_pdrop",
       .field = &RunConfig::embd_pdrop,
       .help = "gpt2: dropout on the embeddings, in training",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "attn_pdrop",
       .field = &RunConfig::attn_pdrop,
       .help = "gpt2: dropout on the attention weights, in training",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "bias",
       .field = &RunConfig::bias,
       .help = "gpt2: biases in linear and norm layers, as published weights have them",
       .on_resume = kRefused},
      {.name = "gelu",
       .field = &RunConfig::gelu,
       .help = "gpt2: tanh, the approximation of published weights, or exact; gpt_neox: exact",
       .values = {{.name = "tanh"}, {.name = "exact"}},
       .on_resume = kRefused},
  };
}

}  // namespace

std::vector<OptionRow> model() {
  std::vector<OptionRow> rows = shape();
  for (OptionRow& row : family_options()) rows.push_back(row);
  return rows;
}

std::vector<OptionRow> data() {
  constexpr OptionScopes kTokenizer = in(OptionScope::kTokenizer);
  constexpr OptionScopes kFetching =
      kRunScopes | in(OptionScope::kGenerate) | in(OptionScope::kExport);
  return {
      {.name = "dataset",
       .aliases = {"dataset_path", "data_path"},
       .field = &RunConfig::dataset,
       .help = "a file, a pattern, a directory read in depth, https://..., s3://..., "
               "hf://datasets/OWNER/NAME or the name of a data set on the hub; text, JSON lines, "
               "Arrow, Parquet, or token ids in a .bin file or a directory of train.bin and "
               "val.bin",
       .on_resume = kText},
      {.name = "dataset_mix",
       .field = &RunConfig::dataset_mix,
       .help = "instead of dataset several, each NAME=WEIGHT: they are mixed in these shares",
       .on_resume = kText},
      {.name = "dataset_config_name",
       .field = &RunConfig::dataset_config_name,
       .help = "configuration of a data set on the hub, or directory of one on this machine; en "
               "for c4",
       .on_resume = kText},
      {.name = "text_field",
       .field = &RunConfig::text_field,
       .help = "key of the text in JSON lines and tables (text); where it is given, rows that have "
               "it are text, whatever else they hold",
       .on_resume = kText},
      {.name = "streaming",
       .field = &RunConfig::streaming,
       .help = "read documents while training, in lanes, or tokenize all of them first; auto: "
               "what is on a server and larger than 1 GiB is streamed",
       .values = {{.name = "auto"}, {.name = "on"}, {.name = "off"}},
       .on_resume = kText},
      {.name = "data_lanes",
       .field = &RunConfig::data_lanes,
       .help = "streaming: parts that are read side by side, whatever the ranks; each has a file "
               "open",
       .minimum = 1,
       .maximum = 1 << 16,
       .on_resume = kText},
      {.name = "shuffle_buffer",
       .field = &RunConfig::shuffle_buffer,
       .help = "streaming: documents among which the next one is drawn, over all lanes; they are "
               "part of each checkpoint",
       .minimum = 1,
       .on_resume = kText},
      {.name = "packing",
       .field = &RunConfig::packing,
       .help = "how documents become windows: joined and cut, whole documents in as few windows as "
               "possible, or one document a window; auto: concatenate text, rows of ids and "
               "conversations",
       .values =
           {{.name = "auto"}, {.name = "concatenate"}, {.name = "best_fit"}, {.name = "rows"}},
       .on_resume = kText},
      {.name = "dataset_dir",
       .field = &RunConfig::dataset_dir,
       .help = "directory of {dataset}/train.bin and val.bin",
       .on_resume = kText},
      {.name = "max_dataset_len",
       .field = &RunConfig::max_dataset_len,
       .help = "cap on training windows; of a dataset_mix that is not streamed, on those of each "
               "data set; of a stream about as many, as each lane ends with a whole document",
       .minimum = 1,
       .unset = "inf",
       .on_resume = kText},
      {.name = "dataset_type",
       .field = &RunConfig::dataset_type,
       .help = "what training_dir and test_dir hold: JSON lines of ids, or Arrow",
       .values = {{.name = "gpt_jsonl"}, {.name = "hf"}},
       .on_resume = kText},
      {.name = "data_type",
       .field = &RunConfig::data_type,
       .help = "kind of model the data is for",
       .values = {{.name = "gpt"}},
       .on_resume = kFree},
      {.name = "training_dir",
       .field = &RunConfig::training_dir,
       .help = "training data of dataset_type, instead of dataset: all files of a directory, or "
               "those with its suffix if there are any",
       .environment = "SM_CHANNEL_TRAIN",
       .environment_unless = "dataset",
       .on_resume = kText},
      {.name = "test_dir",
       .field = &RunConfig::test_dir,
       .help = "validation data of dataset_type",
       .environment = "SM_CHANNEL_TEST",
       .environment_unless = "dataset",
       .on_resume = kText},
      {.name = "zipped_data",
       .field = &RunConfig::zipped_data,
       .help = "gpt_jsonl: files ending .json.gz, else .json",
       .on_resume = kText},
      {.name = "use_synthetic_data",
       .field = &RunConfig::use_synthetic_data,
       .help = "random tokens, different per data-parallel rank; turns validation off",
       .on_resume = kText},
      {.name = "document_mask",
       .field = &RunConfig::document_mask,
       .help =
           "no token attends to one of another document in its window, and positions begin anew "
           "with each; in validation too",
       .on_resume = kWarned},
      {.name = "data_num_workers",
       .field = &RunConfig::data_num_workers,
       .help = "streaming: threads that read and tokenize ahead of the step; they never change "
               "content or order",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "tokenizer",
       .field = &RunConfig::tokenizer,
       .help =
           "a tokenizer's file (tokenizer.json, vocab.json, tokenizer.model) or directory, or "
           "`byte`, or the name of a model in Hugging Face's cache of this machine; or one on a "
           "server, which is fetched: OWNER/NAME[@REVISION] or gpt2 of the hub, an https or "
           "s3 address",
       .scopes = kFetching | kTokenizer,
       .on_resume = kRefused},
      {.name = "chat_template",
       .field = &RunConfig::chat_template,
       .help = "how conversations become text: a name of docs/data.md, such as chatml; an exported "
               "model has it too",
       .unset = "the tokenizer's own",
       .scopes = kFetching,
       .on_resume = kText},
      {.name = "on_bad_line",
       .field = &RunConfig::on_bad_line,
       .help = "a broken line of JSON: stop, or count and skip it",
       .values = {{.name = "error"}, {.name = "skip"}},
       .scopes = kRunScopes | kTokenizer,
       .on_resume = kText},
      {.name = "cache_dir",
       .field = &RunConfig::cache_dir,
       .help =
           "tokenized data, what was fetched from servers, the xla back end's compiled programs; "
           "cuda_products.txt: measured products (docs/cuda.md)",
       .environment = "XLA_CACHE_DIR",
       .scopes = kFetching | kTokenizer,
       .on_resume = kFree},
      {.name = "max_cache_size",
       .field = &RunConfig::max_cache_size,
       .help = "bytes of data sets on servers that cache_dir keeps; what was not read for longest "
               "goes",
       .minimum = 0,
       .form = ValueForm::kBytes,
       .scopes = kFetching,
       .on_resume = kFree},
  };
}

std::vector<OptionRow> validation() {
  return {
      {.name = "validation_freq",
       .field = &RunConfig::validation_freq,
       .help = "steps between validations; 0: off",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "validation_batches",
       .field = &RunConfig::validation_batches,
       .help = "batches per rank of one validation; with --eval_only all there are, unless given",
       .minimum = 1,
       .on_resume = kFree},
      {.name = "val_batch_size",
       .field = &RunConfig::val_batch_size,
       .help = "sequences per rank of a validation batch",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "validation_dataset",
       .field = &RunConfig::validation_dataset,
       .help = "file or directory to validate on",
       .unset = "validation_fraction of the data set",
       .on_resume = kText},
      {.name = "validation_fraction",
       .field = &RunConfig::validation_fraction,
       .help = "share of the data set kept for validation when validation_dataset is none",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kText},
      {.name = "fast_validation",
       .field = &RunConfig::fast_validation,
       .help = "of several validation files read the last one only, by name; False: all of them",
       .on_resume = kFree},
      {.name = "run_validation",
       .field = &RunConfig::run_validation,
       .help = "validate at the end of every epoch, and of the run; 0: as validation_freq says",
       .on_resume = kFree},
      {.name = "eval_only",
       .field = &RunConfig::eval_only,
       .help = "load, validate once, exit; holds weights only, with bf16 in bf16",
       .on_resume = kFree},
      {.name = "compare_baselines",
       .field = &RunConfig::compare_baselines,
       .help = "print bits per byte beside those of unigram and bigram models and of gzip -9",
       .on_resume = kFree},
  };
}

}  // namespace tessera::option_groups
