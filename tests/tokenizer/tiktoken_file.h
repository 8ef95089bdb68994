#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tessera {

inline std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j < bytes.size() + 1 ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

// All bytes, then these tokens.
inline std::vector<std::string> tokens_with(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// A file of ranks of these tokens.
inline std::string tiktoken_file(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    text += cat(base64(tokens[rank]), " ", rank, "\n");
  }
  return text;
}

}  // namespace tessera
