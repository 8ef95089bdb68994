#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "torch_files/dcp_writer.h"

namespace tessera {

// A checkpoint of three ranks. Element number e of a tensor is (e + its length of name) / 4.
inline DcpMetadata write_dcp_sample(const std::filesystem::path& directory) {
  constexpr int64_t kRanks = 3;
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    bool by_columns = false;
  };
  const std::vector<Tensor> tensors{{"model.a.weight", DType::kF32, {7, 5}},
                                    {"model.b.weight", DType::kBF16, {4, 6}, true},
                                    {"model.b.bias", DType::kF32, {2}},
                                    {"model.none", DType::kF32, {0, 3}},
                                    {"optim.state.a.weight.exp_avg", DType::kF32, {7, 5}},
                                    {"optim.state.a.weight.step", DType::kF32, {}},
                                    {"counter", DType::kI64, {}}};
  DcpMetadata metadata;
  std::vector<std::unique_ptr<DcpFileWriter>> files;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    metadata.files.push_back(dcp_file_name(rank));
    files.push_back(std::make_unique<DcpFileWriter>(directory, rank));
  }
  for (const Tensor& t : tensors) {
    DcpTensor tensor{t.name, "", t.dtype, t.shape, {}};
    const size_t dim = t.by_columns ? 1 : 0;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      DcpChunk chunk{whole_box(t.shape), {}};
      if (t.shape.empty()) {
        if (rank != 1) continue;  // one rank has what is small
      } else {
        const int64_t part = (t.shape[dim] + kRanks - 1) / kRanks;
        chunk.box.begin[dim] = std::min(rank * part, t.shape[dim]);
        chunk.box.shape[dim] = std::min(part, t.shape[dim] - chunk.box.begin[dim]);
        if (num_elements(chunk.box.shape) == 0) continue;
      }
      std::vector<std::byte> bytes;
      for (int64_t e = 0; e < num_elements(chunk.box.shape); ++e) {
        int64_t rest = e, number = 0, stride = 1;
        for (size_t d = t.shape.size(); d > 0; --d) {
          number += (chunk.box.begin[d - 1] + rest % chunk.box.shape[d - 1]) * stride;
          rest /= chunk.box.shape[d - 1];
          stride *= t.shape[d - 1];
        }
        const float value = static_cast<float>(number + static_cast<int64_t>(t.name.size())) / 4;
        auto put = [&](const auto& element) {
          auto* p = reinterpret_cast<const std::byte*>(&element);
          bytes.insert(bytes.end(), p, p + sizeof element);
        };
        if (t.dtype == DType::kBF16) put(BF16(value).bits);
        if (t.dtype == DType::kF32) put(value);
        if (t.dtype == DType::kI64) put(int64_t{1} << 40);
      }
      chunk.place = files[static_cast<size_t>(rank)]->add_chunk(
          t.dtype, chunk.box.shape, [&](uint64_t offset, std::span<std::byte> to) {
            std::memcpy(to.data(), bytes.data() + offset, to.size());
          });
      tensor.chunks.push_back(chunk);
    }
    metadata.tensors.push_back(std::move(tensor));
  }
  auto add = [&](const std::string& name, const std::function<void(PickleWriter&)>& value) {
    metadata.items.push_back({name, files[0]->add_item(value)});
  };
  add("optim.param_groups.0.lr", [](PickleWriter& w) { w.number(3e-4); });
  add("optim.param_groups.0.betas", [](PickleWriter& w) {
    w.mark();
    w.number(0.9);
    w.number(0.95);
    w.tuple();
  });
  add("note.list", [](PickleWriter& w) {
    w.empty_list();
    w.mark();
    for (int64_t i : {int64_t{-1}, int64_t{255}, int64_t{65535}, int64_t{65536}, INT64_MIN})
      w.integer(i);
    w.none();
    w.truth(true);
    w.append_items();
  });
  for (auto& file : files) file->commit();
  write_dcp_metadata(directory, metadata,
                     {{"note.list", {"note", "list"}},
                      {"optim.param_groups.0.lr", {"optim", "param_groups", "0", "lr"}},
                      {"optim.param_groups.0.betas", {"optim", "param_groups", "0", "betas"}}});
  return metadata;
}

}  // namespace tessera
