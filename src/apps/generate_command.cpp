#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/named_models.h"
#include "apps/run_device.h"
#include "apps/text_input.h"
#include "base/log.h"
#include "data/find_chat_template.h"
#include "data/record_encoder.h"
#include "generate/decoder.h"
#include "generate/prompt_file.h"
#include "generate/text_generation.h"
#include "generate/trained_model.h"
#include "models/build_model.h"
#include "planning/host_memory.h"
#include "remote/url.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera generate MODEL [OPTIONS]

Continues a text with a trained model. MODEL is a checkpoint of any number of ranks, a directory of checkpoints
(the newest is taken), the directory of a Hugging Face model, or its name: in the cache of this machine,
or on a server, from where it is fetched. The tokenizer is that of the training run or of the directory unless
--tokenizer is given. The text goes to standard output as it grows, speed to standard error. Of --prompts_file every text is continued, several at once, and comes
as a line of JSON with prompt, completion, tokens and finish_reason (stop or length), in the order of the file.
With --chat a prompt is what a user says, and the model's answer is printed.

Examples
  tessera generate checkpoints --prompt "A horse is"
  tessera generate Llama-3.2-1B --prompt "A horse is" --temperature 0.7 --top_p 0.9
  tessera generate checkpoints --prompt "A horse is" --temperature 0 --max_new_tokens 40
  tessera generate checkpoints/llama_v2-700steps --top_k 50 --top_p 0.9 --seed 7
  tessera generate checkpoints --prompt_file story.txt --stop '\n\n' 'The end'
  tessera generate checkpoints --chat --prompt "What is a horse?"        a model that was trained on conversations
  printf "A horse is" | tessera generate checkpoints --prompt_file -
  tessera generate checkpoints --prompts_file prompts.jsonl --prompt_batch_size 8

Options
)";

// A file of prompts is read whole: its longest decides what is planned.
constexpr size_t kMaxPromptsBytes = size_t{1} << 30;

// So many prompts of a file are continued at once unless memory is short; up to here none of them
// has any influence on another's bits.
constexpr int64_t kDefaultBatch = 16;

struct Prompts {
  std::vector<std::string> texts;
  bool batch = false;  // of --prompts_file
};

Prompts read_prompts(const ParsedOptions& parsed) {
  const RunConfig& config = parsed.config;
  if (parsed.is_given("prompt") + parsed.is_given("prompt_file") + parsed.is_given("prompts_file") >
      1) {
    throw UsageError(cat(parsed.is_given("prompt") ? "--prompt" : "--prompt_file", " and ",
                         parsed.is_given("prompts_file") ? "--prompts_file" : "--prompt_file",
                         " are two sources of one text: give one of them"));
  }
  const std::string& file = config.prompts_file;
  if (config.chat && file.empty() && config.prompt.empty() && config.prompt_file.empty())
    throw UsageError("--chat: say by --prompt, --prompt_file or --prompts_file what the user says");
  if (file.empty()) {
    if (parsed.is_given("prompt_batch_size"))
      throw UsageError("--prompt_batch_size counts texts of --prompts_file: give that, too");
    return {{config.prompt_file.empty() ? config.prompt : read_text_input(config.prompt_file)}};
  }
  std::string text = read_text_input(file, kMaxPromptsBytes);
  bool json = text.starts_with('{') ||
              std::filesystem::path(file).filename().string().find(".json") != std::string::npos;
  return {parse_prompts(text, json ? PromptFormat::kJsonLines : PromptFormat::kLines,
                        name_of_text_input(file)),
          true};
}

// The prompt as a document begins: with what the tokenizer puts there, or, in training text, behind
// the end of another.
std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& prompt,
                            bool documents_joined) {
  std::vector<int32_t> ids;
  if (documents_joined && tokenizer.document_prefix().empty())
    ids.push_back(tokenizer.end_of_text());
  tokenizer.encode_prompt(prompt, ids);
  if (ids.empty()) ids.push_back(tokenizer.end_of_text());
  return ids;
}

// Of --chat, or of a run that named a template: how its conversations are written.
std::optional<ChatTemplate> find_chat(const ParsedOptions& parsed, const TrainedModel& model,
                                      const Tokenizer& tokenizer) {
  const bool given = parsed.is_given("chat_template");
  if (given && !parsed.config.chat)
    throw UsageError("--chat_template says how --chat writes prompts: give that, too");
  const std::string& style = given ? parsed.config.chat_template : model.chat_template;
  if (!parsed.config.chat && (style.empty() || parsed.is_given("tokenizer"))) return {};
  auto chat = find_chat_template(model.tokenizer, tokenizer, style);
  if (!chat)
    throw UserError(
        "--chat: the model's tokenizer has no chat template: name the one that it was trained with "
        "by --chat_template, for example chatml");
  return chat;
}

// `\n` and `\t` become what they stand for, `\\` a backslash.
std::vector<std::string> stop_texts(const std::vector<std::string>& words) {
  std::vector<std::string> stops;
  for (const std::string& word : words) {
    std::string& stop = stops.emplace_back();
    for (size_t i = 0; i < word.size(); ++i) {
      char next = word[i] == '\\' && i + 1 < word.size() ? word[i + 1] : 0;
      bool known = next == 'n' || next == 't' || next == '\\';
      stop += !known ? word[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      i += known;
    }
    if (stop.empty()) throw UsageError("--stop: a text must not be empty");
  }
  return stops;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw UserError(cat("cannot write to standard output: ", std::strerror(errno)));
}

std::string rate(int64_t tokens, double seconds) {
  return format("%lld tokens in %.2f s (%.1f tokens/s)", static_cast<long long>(tokens), seconds,
                static_cast<double>(tokens) / std::max(seconds, 1e-9));
}

// What keeps the programs from being bound: nothing, or why memory does not suffice.
std::optional<std::string> shortage_of(const RunConfig& config, const DecoderPrograms& programs,
                                       const Device& device) {
  const int64_t planned = programs.planned();
  const std::string ways =
      cat("; --bf16 1 halves the weights of an f32 model, ",
          config.prompts_file.empty() ? "" : "a smaller --prompt_batch_size or ",
          "fewer --max_new_tokens the cache");
  if (config.memory) {  // then the user knows better
    if (planned <= *config.memory) return {};
    return cat("not enough memory: the plan needs ", format_bytes(planned), ", which is ",
               format_bytes(planned - *config.memory), " more than --memory ",
               format_bytes(*config.memory), ways);
  }
  if (device.memory && planned > *device.memory) {
    return cat("not enough memory: the plan needs ", format_bytes(planned), " of ",
               device.description, ", of which ", format_bytes(*device.memory), " are free", ways);
  }
  const int64_t of_host = device.memory ? 0 : planned;
  RankMemory need{of_host, memory_beside_plan(config, of_host, device.pool->threads()),
                  memory_pools()};
  auto shortage = find_shortage({&need, 1});
  if (!shortage) return {};
  return cat("not enough memory: ", shortage->text, ways,
             ". Where the system is wrong, say by --memory BYTES what may be used");
}

// Programs for as many rows as are asked for, or, where nobody asks, as memory has room for.
// `config` says what the run takes beside its plan.
DecoderPrograms plan_decoder(const RunConfig& config, const ModelConfig& model,
                             DecoderOptions options, const Device& device) {
  auto prompts = std::ssize(options.prompts);
  options.rows = std::min(prompts, config.prompt_batch_size.value_or(kDefaultBatch));
  for (;; options.rows /= 2) {
    DecoderPrograms programs(model_builder(model), options, *device.backend);
    auto shortage = shortage_of(config, programs, device);
    if (!shortage) return programs;
    if (config.prompt_batch_size || options.rows == 1) throw UserError(*shortage);
  }
}

// One continuation as a line of JSON. Bytes of a prompt that form no character become U+FFFD.
std::string json_line(const std::string& prompt, const std::string& completion, int64_t tokens,
                      FinishReason reason) {
  nlohmann::ordered_json line{{"prompt", prompt},
                              {"completion", completion},
                              {"tokens", tokens},
                              {"finish_reason", name(reason)}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Prints continuations as lines in the order of the prompts, each when those before it are there.
class OrderedLines {
 public:
  explicit OrderedLines(const std::vector<std::string>& prompts)
      : prompts_(prompts), completions_(prompts.size()), lines_(prompts.size()) {}

  GenerationEvents events() {
    return {[this](size_t i, std::string_view text) { completions_[i] += text; },
            [this](size_t i, FinishReason reason, int64_t tokens) { end(i, reason, tokens); }};
  }

 private:
  void end(size_t i, FinishReason reason, int64_t tokens) {
    lines_[i] = json_line(prompts_[i], std::exchange(completions_[i], {}), tokens, reason);
    for (; printed_ < lines_.size() && !lines_[printed_].empty(); ++printed_)
      print(std::exchange(lines_[printed_], {}));
  }

  const std::vector<std::string>& prompts_;
  std::vector<std::string> completions_, lines_;  // empty: not there yet, or no longer
  size_t printed_ = 0;
};

// One text, as it grows.
GenerationEvents growing_text() {
  return {[](size_t, std::string_view text) { print(text); },
          [](size_t, FinishReason, int64_t) { print("\n"); }};
}

}  // namespace

int generate_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kGenerate);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.size() != 1)
    throw UsageError(
        "generate takes one checkpoint, a directory of them, or a Hugging Face model: tessera "
        "generate MODEL --prompt TEXT");
  const RunConfig& config = parsed.config;
  std::optional<std::string> given;
  if (parsed.is_given("tokenizer")) given = fetch_named_tokenizer(config.tokenizer, config);
  TrainedModel model = open_trained_model(parsed.words[0], config, given);
  auto tokenizer = load_tokenizer_for(model.tokenizer, model.model.vocab_size);
  choose_device(parsed);
  log_messages(parsed);
  if (given) warn_of_other_tokenizer(masked_url(config.tokenizer), *tokenizer, model);

  const Prompts prompts = read_prompts(parsed);
  const std::optional<ChatTemplate> chat = find_chat(parsed, model, *tokenizer);
  std::vector<std::vector<int32_t>> ids;
  const int64_t vocab_size = model.model.vocab_size;
  const RecordEncoder encoder(*tokenizer, config.chat ? chat : std::nullopt, vocab_size);
  for (const std::string& prompt : prompts.texts) {
    ids.push_back(config.chat ? encoder.encode_question(prompt)
                              : encode(*tokenizer, prompt, model.documents_joined));
    check_ids(*tokenizer, ids.back(), vocab_size);
  }
  DecoderOptions options;
  options.context = model.context;
  options.prompts.clear();
  for (const auto& each : ids) options.prompts.push_back(std::ssize(each));
  options.longest = std::ranges::max(options.prompts) + config.max_new_tokens;
  options.compute = model.compute;
  if (parsed.is_given("bf16")) options.compute = config.bf16 ? DType::kBF16 : DType::kF32;
  GenerationOptions generation{{config.temperature, config.top_k, config.top_p, config.seed},
                               config.max_new_tokens,
                               model.end_ids,
                               stop_texts(config.stop),
                               model.path.string()};
  if (chat) {
    if (auto end = find_token(*tokenizer, chat->answer_end())) {
      generation.end_ids.push_back(*end);
    } else {
      generation.stops.push_back(chat->answer_end());
    }
  }
  RunConfig run = config;
  run.bf16 = options.compute == DType::kBF16;
  if (!parsed.is_given("tokenizer")) run.tokenizer = model.tokenizer;

  const RunDevice opened = open_device(config, false);
  const Device& device = opened.device;
  Decoder decoder(plan_decoder(run, model.model, options, device), *device.backend);
  decoder.load(*model.weights, *device.pool);
  OrderedLines lines(prompts.texts);
  if (!prompts.batch && !config.chat) print(prompts.texts[0]);
  GenerationSpeed speed = generate(decoder, *tokenizer, generation, ids,
                                   prompts.batch ? lines.events() : growing_text());
  // The first token comes with the prompt.
  TESSERA_INFO(
      cat(prompts.batch ? cat(ids.size(), " prompts, ", decoder.rows(), " at once: ")
                        : std::string("Prompt: "),
          rate(speed.prompt_tokens, speed.prompt_seconds),
          prompts.batch ? "; behind them: " : "; behind it: ", rate(speed.tokens, speed.seconds)));
  return 0;
}

}  // namespace tessera
