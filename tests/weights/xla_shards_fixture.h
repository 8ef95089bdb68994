#pragma once
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/weights/torch_state_fixture.h"
#include "torch_files/pickle_writer.h"
#include "torch_files/zip_writer.h"

namespace tessera {

// A module of which torch_xla's FSDP has made one flat parameter, or one of each.
struct XlaUnit {
  std::string module;                   // "_fsdp_wrapped_module.transformer.h.0"; "" of the whole
  std::vector<std::string> parameters;  // behind `prefix` as the module has them
  std::string prefix;                   // "transformer.h.0."
};

// Files of ranks, as XlaFullyShardedDataParallel's state_dict() and get_shard_metadata() would be
// saved by them.
class XlaShardWriter {
 public:
  XlaShardWriter(const ModelConfig& model, int world) : world_(world) {
    parameters_ = parameters_of(model);
    for (size_t i = 0; i < parameters_.size(); ++i) numbers_[parameters_[i].name] = i;
    const std::string blocks = "transformer.h.";
    std::map<std::string, XlaUnit> units;
    for (const Parameter& p : parameters_) {
      const bool in_block = p.name.starts_with(blocks);
      const std::string prefix =
          in_block ? p.name.substr(0, p.name.find('.', blocks.size()) + 1) : "";
      XlaUnit& unit = units[prefix];
      unit.prefix = prefix;
      if (in_block) unit.module = "_fsdp_wrapped_module." + prefix.substr(0, prefix.size() - 1);
      unit.parameters.push_back(p.name.substr(prefix.size()));
    }
    for (auto& [prefix, unit] : units) units_.push_back(std::move(unit));
  }

  bool flattens = true;
  static std::string file_name(int rank, int world) {
    return cat("rank_", rank, "-world_", world, ".pt");
  }
  void write(const std::filesystem::path& directory) const {
    for (int rank = 0; rank < world_; ++rank) write(directory, rank);
  }

  void write(const std::filesystem::path& directory, int rank) const {
    std::vector<std::vector<float>> storages;
    std::string pickle;
    PickleWriter w([&](std::string_view bytes) { pickle += bytes; });
    auto dict = [&](const std::function<void()>& content) {
      w.empty_dict();
      w.mark();
      content();
      w.set_items();
    };
    dict([&] {
      w.text("model");
      dict([&] {
        for (const XlaUnit& unit : units_) {
          for (const Flat& flat : flats_of(unit)) {
            w.text(key(unit, flat));
            tensor(w, storages, shard(unit, flat, rank));
          }
        }
        w.text("_fsdp_wrapped_module.some_table");  // a buffer
        tensor(w, storages, {1, 2, 3});
      });
      w.text("optimizer");
      dict([&] {
        w.text("state");
        dict([&] {
          w.integer(0);
          dict([&] {
            w.text("exp_avg");
            tensor(w, storages, {1});
          });
        });
      });
      w.text("epoch");
      w.integer(3);
      w.text("shard_metadata");
      dict([&] { metadata(w, dict, rank); });
    });
    w.finish();

    std::ofstream out(directory / file_name(rank, world_), std::ios::binary);
    ZipWriter zip([&](std::span<const std::byte> bytes) {
      out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    });
    zip.add("archive/data.pkl", pickle);
    zip.add("archive/byteorder", "little");
    for (size_t i = 0; i < storages.size(); ++i) {
      const auto bytes = std::as_bytes(std::span(storages[i]));
      zip.add(cat("archive/data/", i), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    zip.finish();
  }

 private:
  struct Flat {
    std::string original;  // "_fsdp_wrapped_module.flat_param_0"
    std::vector<std::string> members;
    Shape shape;
  };

  const Parameter& parameter(const std::string& name) const {
    return parameters_[numbers_.at(name)];
  }
  // As a module has it: stacks of matrices are one.
  Shape shape_of(const Parameter& p) const {
    if (p.shape.size() == 1 || p.name.ends_with(".bias")) return {num_elements(p.shape)};
    return {num_elements(p.shape) / p.shape.back(), p.shape.back()};
  }

  std::vector<Flat> flats_of(const XlaUnit& unit) const {
    std::vector<Flat> flats;
    int64_t elements = 0;
    for (const std::string& name : unit.parameters) {
      const Shape shape = shape_of(parameter(unit.prefix + name));
      elements += num_elements(shape);
      if (!flattens) flats.push_back({"_fsdp_wrapped_module._fpw_module." + name, {name}, shape});
    }
    if (flattens)
      flats.push_back({"_fsdp_wrapped_module.flat_param_0", unit.parameters, {elements}});
    return flats;
  }

  static std::string shard_name(const Flat& flat) {
    std::string name = "_fsdp_shard." + flat.original;
    for (size_t at; (at = name.find('.')) != name.npos;)
      name.replace(at, 1, "_FSDP_SHARD_SEPARATOR_");
    return name;
  }
  static std::string key(const XlaUnit& unit, const Flat& flat) {
    return unit.module.empty() ? shard_name(flat) : cat(unit.module, ".", shard_name(flat));
  }

  std::vector<float> shard(const XlaUnit& unit, const Flat& flat, int rank) const {
    std::vector<float> whole;
    for (const std::string& name : flat.members) {
      const size_t number = numbers_.at(unit.prefix + name);
      for (int64_t e = 0; e < num_elements(parameters_[number].shape); ++e)
        whole.push_back(state_value(number, "weight", e));
    }
    while (whole.size() % static_cast<size_t>(world_ * 4) != 0) whole.push_back(0);
    const auto length = std::ssize(whole) / world_;
    return {whole.begin() + rank * length, whole.begin() + (rank + 1) * length};
  }

  static void integers(PickleWriter& w, const Shape& numbers) {
    w.mark();
    for (int64_t n : numbers) w.integer(n);
    w.tuple();
  }
  static void call(PickleWriter& w, std::string_view module, std::string_view name,
                   const std::function<void()>& arguments) {
    w.global(module, name);
    w.mark();
    arguments();
    w.tuple();
    w.reduce();
  }
  static void size(PickleWriter& w, const Shape& shape) {
    call(w, "torch", "Size", [&] { integers(w, shape); });
  }

  static void tensor(PickleWriter& w, std::vector<std::vector<float>>& storages,
                     std::vector<float> values) {
    const Shape shape{std::ssize(values)};
    call(w, "torch._utils", "_rebuild_tensor_v2", [&] {
      w.mark();
      w.text("storage");
      w.global("torch", "FloatStorage");
      w.text(cat(storages.size()));
      w.text("cpu");
      w.integer(shape[0]);
      w.tuple();
      w.reference();
      w.integer(0);
      integers(w, shape);
      integers(w, {1});
      w.truth(false);
      call(w, "collections", "OrderedDict", [] {});
    });
    storages.push_back(std::move(values));
  }

  void metadata(PickleWriter& w, const std::function<void(const std::function<void()>&)>& dict,
                int rank) const {
    w.text("shard_info");
    dict([&] {
      for (const XlaUnit& unit : units_) {
        w.text(unit.module);
        dict([&] {
          for (const Flat& flat : flats_of(unit)) {
            w.text(shard_name(flat));
            dict([&] {
              w.text("_orig_size");
              size(w, flat.shape);
              w.text("_orig_name");
              w.text(flat.original);
            });
          }
        });
      }
    });
    w.text("flatten_info");
    dict([&] {
      for (const XlaUnit& unit : units_) {
        for (const Flat& flat : flats_of(unit)) {
          if (flattens) flatten_info(w, unit, flat);
        }
      }
    });
    w.text("buffer_info");
    dict([] {});
    w.text("world_size");
    w.integer(world_);
    w.text("rank");
    w.integer(rank);
  }

  // Names, shapes and numbers of elements.
  void flatten_info(PickleWriter& w, const XlaUnit& unit, const Flat& flat) const {
    w.text(unit.module.empty() ? flat.original : cat(unit.module, ".", flat.original));
    w.mark();
    w.empty_list();
    w.mark();
    for (const std::string& name : flat.members) w.text("_fpw_module." + name);
    w.append_items();
    w.empty_list();
    w.mark();
    for (const std::string& name : flat.members) size(w, shape_of(parameter(unit.prefix + name)));
    w.append_items();
    w.empty_list();
    w.mark();
    for (const std::string& name : flat.members)
      w.integer(num_elements(parameter(unit.prefix + name).shape));
    w.append_items();
    w.tuple();
  }

  int world_;
  std::vector<Parameter> parameters_;
  std::map<std::string, size_t> numbers_;
  std::vector<XlaUnit> units_;
};

}  // namespace tessera
