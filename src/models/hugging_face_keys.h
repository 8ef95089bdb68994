#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Typed access to one object of a config.json, which remembers what was asked for, so that nothing
// in the file is ignored in silence. Every failure is a UserError that names the file and the key.
class HuggingFaceKeys {
 public:
  // Both must outlive it; `where` stands in messages.
  HuggingFaceKeys(const nlohmann::json& object, std::string_view where)
      : object_(object), where_(where) {}
  std::string_view where() const { return where_; }

  // The value, or null when the key is absent or holds null.
  const nlohmann::json* find(std::string_view key) const;
  // Whether the key is there, be it null.
  bool has(std::string_view key) const;

  // The value of a key, or `fallback` where it is absent. Null is no value of any of these types.
  int64_t integer(std::string_view key, int64_t fallback) const;
  double real(std::string_view key, double fallback) const;
  double positive(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;

  // The key, if it is there, must repeat a value that was found elsewhere.
  void must_agree(std::string_view key, double used, std::string_view because) const;

  [[noreturn]] void fail(std::string_view key, std::string_view expected,
                         const nlohmann::json& value) const;
  [[noreturn]] void refuse(std::string_view what) const;

  // Refuses the first key that nobody asked for, unless it is null or one of `harmless`, which
  // change nothing.
  void refuse_others(std::span<const std::string_view> harmless) const;

 private:
  const nlohmann::json* present(std::string_view key) const;  // null too

  const nlohmann::json& object_;
  std::string_view where_;
  mutable std::set<std::string, std::less<>> asked_;
};

struct ModelConfig;
struct RopeScaling;

// How a family calls rotary base and share of a head where they stand beside the objects, and the
// share that it has where no key says one.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* share = "partial_rotary_factor";
  double absent_share = 1;
};

// Rotary base, share of a head and scaling of a config.json, from `rope_parameters`, `rope_scaling`
// and keys beside them, with transformers' priorities. config.max_context_width must be read.
void read_rope(const HuggingFaceKeys& top, const RopeKeys& own, ModelConfig& config);
// `rope_scaling` as all versions of transformers know it.
nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling);

// Whether an activation is GELU by its tanh formula or the exact one. Refuses any other.
bool read_tanh_gelu(const HuggingFaceKeys& keys, const char* key, const char* fallback);

}  // namespace tessera
