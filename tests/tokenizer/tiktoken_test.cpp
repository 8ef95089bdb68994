#include "tokenizer/tiktoken.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/tokenizer/tiktoken_file.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera {
namespace {

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

TEST(Tiktoken, NeighboursThatAreATokenMergeByRank) {
  ByteLevelBpe tokenizer(
      parse_tiktoken(tiktoken_file(tokens_with({"ab", "bc", "abcd", "cd", "bcd"})), "small", true));
  EXPECT_EQ(ids_of(tokenizer, "xabcx"), (std::vector<int32_t>{'x', 256, 'c', 'x'}));
  EXPECT_EQ(ids_of(tokenizer, "abcdx"), (std::vector<int32_t>{258, 'x'}));  // ab, then ab + cd
  EXPECT_EQ(ids_of(tokenizer, "xbcd"), (std::vector<int32_t>{'x', 260}));   // bc, then bc + d
  // A piece that is a token is taken whole, though no merge leads to it.
  ByteLevelBpe whole(
      parse_tiktoken(tiktoken_file(tokens_with({"bc", "abc", "zyx"})), "small", true));
  EXPECT_EQ(ids_of(whole, "zyx"), std::vector<int32_t>{258});
  EXPECT_EQ(ids_of(whole, "zyxa"), (std::vector<int32_t>{'z', 'y', 'x', 'a'}));
}

TEST(Tiktoken, SpecialTokensAreThoseOfLlama3) {
  BpeModel model = parse_tiktoken(tiktoken_file(tokens_with({"ab"})), "small", true);
  EXPECT_EQ(model.tokens.size(), 257u + 256u);
  EXPECT_EQ(model.document_prefix, std::vector<int32_t>{257});
  EXPECT_EQ(model.end_of_text, 258);
  EXPECT_EQ(model.tokens[257], "<|begin_of_text|>");
  EXPECT_EQ(model.tokens[257 + 9], "<|eot_id|>");
  EXPECT_EQ(model.tokens[257 + 2], "<|reserved_special_token_0|>");
  EXPECT_EQ(model.tokens[257 + 5], "<|reserved_special_token_2|>");
  EXPECT_EQ(model.tokens[257 + 255], "<|reserved_special_token_247|>");
  ByteLevelBpe tokenizer(model);
  std::vector<int32_t> ids;
  tokenizer.encode_prompt("a<|eot_id|>", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{257, 'a', 266}));
}

TEST(Tiktoken, TheNumberOfRanksDecidesTheKind) {
  auto read = [](size_t count) {
    std::vector<std::string> tokens = tokens_with({});
    for (size_t i = 0; tokens.size() < count; ++i) {
      tokens.push_back(cat(static_cast<char>('a' + i % 26), i / 26, "x"));
    }
    return parse_tiktoken(tiktoken_file(tokens), "many");
  };
  BpeModel llama3 = read(128000);
  EXPECT_EQ(llama3.tokens.size(), 128256u);
  EXPECT_EQ(llama3.document_prefix, std::vector<int32_t>{128000});
  EXPECT_EQ(llama3.pattern, PiecePattern::kLlama3);
  BpeModel gpt2 = read(50256);
  EXPECT_EQ(gpt2.end_of_text, 50256);
  EXPECT_EQ(gpt2.pattern, PiecePattern::kGpt2);
  BpeModel cl100k = read(100256);
  EXPECT_EQ(cl100k.end_of_text, 100257);
  EXPECT_EQ(cl100k.tokens.size(), 100277u);
  ByteLevelBpe tokenizer(cl100k);
  EXPECT_EQ(tokenizer.token_bytes(100256), "");
  EXPECT_EQ(tokenizer.token_bytes(100276), "<|endofprompt|>");
}

TEST(Tiktoken, BrokenFilesAreRefused) {
  auto expect_error = [](const char* cause, const std::string& text) {
    std::string message = user_error([&] { parse_tiktoken(text, "given.model", true); });
    expect_contains(message, "given.model");
    expect_contains(message, cause);
    EXPECT_LT(message.size(), 400u);
  };
  std::string good = tiktoken_file(tokens_with({"ab"}));
  expect_error("byte 0 has no token", "");
  expect_error("line 258 is not a token", good + "abc 257\n");
  expect_error("line 258 is not a token", good + "a=== 257\n");
  expect_error("line 258 is not a token", good + "YWI=YWI= 257\n");
  expect_error("line 258 is not a token", good + "YWI= -1\n");
  expect_error("line 258 is not a token", good + "YWI= 257x\n");
  expect_error("line 258 is not a token", good + "YWI= 99999999999\n");
  expect_error("line 258 is not a token", good + std::string(5000, '!') + "\n");
  expect_error("ranks are not 0 to 257", good + "YWM= 300\n");
  expect_error("rank 256 is there twice", good + "YWM= 256\n");
  expect_error("ranks 256 and 257 are the same", good + "YWI= 257\n");
  expect_error("512 bytes", good + base64(std::string(513, 'a')) + " 257\n");
  std::vector<std::string> bytes = tokens_with({});
  bytes.pop_back();
  expect_error("byte 255 has no token", tiktoken_file(bytes));
  expect_error("more than", std::string((size_t{16} << 20) + 1, 'a'));
  expect_contains(user_error([&] { parse_tiktoken(good, "given.model"); }), "with 257 ranks");
}

}  // namespace
}  // namespace tessera
