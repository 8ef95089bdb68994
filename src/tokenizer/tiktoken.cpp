#include "tokenizer/tiktoken.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr size_t kMaxTokenBytes = 512;  // every split of a token is looked at
constexpr size_t kMostSpecial = 256;    // ids behind the ranks

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}
  BpeModel read(std::string_view text, bool any_count) {
    read_ranks(text);
    add_special(any_count);
    find_merges();
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(cat("cannot read tokenizer '", name_, "': ", what));
  }
  std::pair<std::string, int32_t> read_line(std::string_view line, size_t number) const;
  void read_ranks(std::string_view text);
  void find_merges();
  void add_special(bool any_count);
  void add_llama3_special();

  const std::string& name_;
  std::unordered_map<std::string_view, int32_t> ids_;  // of the model's tokens
  BpeModel model_;
};

std::pair<std::string, int32_t> Reader::read_line(std::string_view line, size_t number) const {
  size_t space = line.find(' ');
  auto bytes = from_base64(line.substr(0, space));
  std::optional<int32_t> rank;
  if (bytes && space != std::string_view::npos)
    rank = parse_number<int32_t>(line.substr(space + 1));
  if (!rank || *rank < 0) {
    fail(
        cat("line ", number, " is not a token in base64 and its rank: '", line.substr(0, 80), "'"));
  }
  if (bytes->empty() || bytes->size() > kMaxTokenBytes) {
    fail(
        cat("line ", number, ": a token has 1 to ", kMaxTokenBytes, " bytes, not ", bytes->size()));
  }
  return {std::move(*bytes), *rank};
}

void Reader::read_ranks(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    fail(cat("it has more than ", format_bytes(static_cast<int64_t>(kMaxFileBytes))));
  }
  std::vector<std::pair<std::string, int32_t>> lines;
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    ++number;
    if (!line.empty()) lines.push_back(read_line(line, number));
  }
  model_.tokens.reserve(lines.size() + kMostSpecial);  // ids_ has views of them
  model_.tokens.resize(lines.size());
  for (auto& [bytes, rank] : lines) {
    if (static_cast<size_t>(rank) >= lines.size()) {
      fail(cat("its ", lines.size(), " ranks are not 0 to ", lines.size() - 1, ": one is ", rank));
    }
    std::string& token = model_.tokens[static_cast<size_t>(rank)];
    if (!token.empty()) fail(cat("rank ", rank, " is there twice"));
    token = std::move(bytes);
  }
  for (size_t id = 0; id < model_.tokens.size(); ++id) {
    if (ids_.emplace(model_.tokens[id], static_cast<int32_t>(id)).second) continue;
    fail(cat("ranks ", ids_[model_.tokens[id]], " and ", id, " are the same token"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    char c = static_cast<char>(byte);
    if (!ids_.contains(std::string_view(&c, 1))) fail(cat("byte ", byte, " has no token"));
  }
}

void Reader::find_merges() {
  model_.rank_is_result = true;
  model_.whole_pieces = true;
  for (size_t id = 0; id < ids_.size(); ++id) {
    std::string_view token = model_.tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      auto left = ids_.find(token.substr(0, cut));
      if (left == ids_.end()) continue;
      auto right = ids_.find(token.substr(cut));
      if (right == ids_.end()) continue;
      model_.merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
  }
}

void Reader::add_special(bool any_count) {
  size_t count = model_.tokens.size();
  auto add = [&](size_t id, std::string_view text) {
    model_.tokens.resize(id + 1);
    model_.tokens[id] = text;
    model_.added.push_back(
        {.text = std::string(text), .id = static_cast<int32_t>(id), .special = true});
  };
  if (count == 50256) {
    add(count, kEndOfTextName);
    model_.end_of_text = 50256;
  } else if (count == 100256) {
    add(100257, kEndOfTextName);
    add(100258, "<|fim_prefix|>");
    add(100259, "<|fim_middle|>");
    add(100260, "<|fim_suffix|>");
    add(100276, "<|endofprompt|>");
    model_.end_of_text = 100257;
    model_.pattern = PiecePattern::kLlama3;
  } else if (count == 128000 || any_count) {
    add_llama3_special();
  } else {
    fail(cat("with ", count,
             " ranks its pattern and special tokens are not known (known: 128000 of "
             "Llama 3, 100256 of cl100k_base, 50256 of r50k_base); give its tokenizer.json"));
  }
}

void Reader::add_llama3_special() {
  constexpr std::string_view kNamed[] = {"<|begin_of_text|>",
                                         "<|end_of_text|>",
                                         "",
                                         "",
                                         "<|finetune_right_pad_id|>",
                                         "",
                                         "<|start_header_id|>",
                                         "<|end_header_id|>",
                                         "<|eom_id|>",
                                         "<|eot_id|>",
                                         "<|python_tag|>"};
  auto first = static_cast<int32_t>(model_.tokens.size());
  int reserved = 0;
  for (size_t i = 0; i < kMostSpecial; ++i) {
    std::string text(i < std::size(kNamed) ? kNamed[i] : "");
    if (text.empty()) text = cat("<|reserved_special_token_", reserved++, "|>");
    model_.added.push_back(
        {.text = text, .id = static_cast<int32_t>(model_.tokens.size()), .special = true});
    model_.tokens.push_back(text);
  }
  model_.document_prefix = {first};
  model_.end_of_text = first + 1;
  model_.pattern = PiecePattern::kLlama3;
}

}  // namespace

BpeModel read_tiktoken(const std::filesystem::path& path) {
  return parse_tiktoken(MappedFile(path).text(), path.string());
}

BpeModel parse_tiktoken(std::string_view text, const std::string& name, bool any_count) {
  return Reader(name).read(text, any_count);
}

}  // namespace tessera
