#pragma once
#include <array>

namespace tessera {

struct ModelFamily;

// The list of model families: the name of each, where it is defined (families/NAME.cpp), and its
// place in the list, which is the order in which users see them.
enum class ModelType { kGptNeox, kLlamaV2, kLlamaV3, kMistral, kMixtral, kGpt2, kQwen2, kQwen3 };

namespace families {
extern const ModelFamily kGptNeox, kLlamaV2, kLlamaV3, kMistral, kMixtral, kGpt2, kQwen2, kQwen3;
}  // namespace families

inline constexpr std::array kModelFamilies{
    &families::kGptNeox, &families::kLlamaV2, &families::kLlamaV3, &families::kMistral,
    &families::kMixtral, &families::kGpt2,    &families::kQwen2,   &families::kQwen3,
};

}  // namespace tessera
