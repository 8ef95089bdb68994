#include "nn/lora.h"

#include <algorithm>
#include <cmath>

namespace tessera {

bool names_layer(std::string_view target, std::string_view layer) {
  if (target == kAllLinear) return true;
  if (target.empty() || !layer.ends_with(target)) return false;
  size_t before = layer.size() - target.size();
  return before == 0 || layer[before - 1] == '.';
}

std::vector<std::string> targets_for(std::span<const std::string> layers,
                                     std::span<const std::string> all) {
  std::vector<std::string> words;
  for (const std::string& layer : layers) {
    std::string word = layer.substr(layer.rfind('.') + 1);
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  bool exact = std::ranges::all_of(all, [&](const std::string& layer) {
    bool named = std::ranges::any_of(
        words, [&](const std::string& word) { return names_layer(word, layer); });
    return !named || std::ranges::find(layers, layer) != layers.end();
  });
  return exact ? words : std::vector<std::string>(layers.begin(), layers.end());
}

double Lora::scale() const {
  auto r = static_cast<double>(rank);
  return alpha / (rank_stabilised ? std::sqrt(r) : r);
}

bool Lora::adapts(std::string_view layer) const {
  return rank > 0 && std::ranges::any_of(targets, [&](const std::string& target) {
           return names_layer(target, layer);
         });
}

}  // namespace tessera
