#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "backends/cuda/products.h"

namespace tessera::cuda {

// An algorithm of cublasLt for one product, chosen by time among those that add in a fixed order.
struct ProductChoice {
  std::string device;   // as the driver names it, '_' for spaces: "NVIDIA_H100_80GB_HBM3"
  int64_t version = 0;  // of cublasLt: 130100. What an algorithm is, only this version knows.
  ProductProblem problem;
  int64_t workspace_bytes = 0;
  std::array<uint64_t, 8> algorithm{};  // cublasLtMatmulAlgo
  double microseconds = 0;              // median of the launches on the device
  double first_microseconds = 0;        // of the first that the library proposes
};

// Choices by device, version and product. As text: a line kHead, then a line a product in 19 words,
// which "#" lines name; they are what to_text() writes.
class ProductChoices {
 public:
  static constexpr std::string_view kHead = "tessera choices of cublasLt 1";
  // Of files of a tuner: the folder of --cache_dir may hold one.
  static constexpr const char* kFileName = "cuda_products.txt";
  static constexpr size_t kMostBytes = size_t{16} << 20;

  // UserError "ORIGIN, line 3: ..." for what is no such text.
  static ProductChoices parse(std::string_view text, const std::string& origin);
  // Those that this program carries, src/backends/cuda/product_choices.txt, and over them those of
  // the file in a folder, where there is one.
  static ProductChoices of_folder(const std::filesystem::path& folder);

  // A choice takes the place of an earlier one for the same product.
  void add(ProductChoice choice);
  const ProductChoice* find(std::string_view device, int64_t version,
                            const ProductProblem& problem) const;
  // The latest version that has choices for a device.
  std::optional<int64_t> newest_version(std::string_view device) const;
  int64_t count(std::string_view device, int64_t version) const;
  int64_t size() const { return std::ssize(choices_); }
  std::string to_text() const;

 private:
  std::map<std::string, ProductChoice> choices_;  // by the words of device, version and product
};

// A device's name as choices have it.
std::string choice_device(std::string_view driver_name);

}  // namespace tessera::cuda
