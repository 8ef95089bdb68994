#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// A struct of Thrift's compact protocol. Fields in the order of their numbers.
class ThriftStruct {
 public:
  ThriftStruct& integer(int number, int64_t value, int type = 6) {
    head(number, type);
    varint(static_cast<uint64_t>(value) << 1u ^ static_cast<uint64_t>(value >> 63));
    return *this;
  }
  ThriftStruct& truth(int number, bool value) {
    head(number, value ? 1 : 2);
    return *this;
  }
  ThriftStruct& text(int number, std::string_view value) {
    head(number, 8);
    varint(value.size());
    bytes_.append(value);
    return *this;
  }
  ThriftStruct& inner(int number, const ThriftStruct& value) {
    head(number, 12);
    bytes_.append(value.bytes());
    return *this;
  }
  ThriftStruct& list(int number, const std::vector<ThriftStruct>& values) {
    head(number, 9);
    bytes_.push_back(static_cast<char>(0xfc));
    varint(values.size());
    for (const ThriftStruct& value : values) bytes_.append(value.bytes());
    return *this;
  }
  std::string bytes() const { return bytes_ + '\0'; }

 private:
  void head(int number, int type) {
    bytes_.push_back(static_cast<char>((number - last_) << 4 | type));
    last_ = number;
  }
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7u) bytes_.push_back(static_cast<char>(value | 128u));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
  int last_ = 0;
};

enum Repetition { kRequiredField = 0, kOptionalField = 1, kRepeatedField = 2 };

inline ThriftStruct leaf_element(std::string_view name, int repetition, int type) {
  return ThriftStruct().integer(1, type).integer(3, repetition).text(4, name);
}
// converted: 3 for LIST, -1 for none.
inline ThriftStruct group_element(std::string_view name, int repetition, int children,
                                  int converted = -1) {
  ThriftStruct out;
  out.integer(3, repetition).text(4, name).integer(5, children);
  return converted < 0 ? out : out.integer(6, converted);
}

template <class T>
std::string little_endian(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Levels of a version 1 page: a run for each.
inline std::string level_runs(const std::vector<int>& levels) {
  std::string runs;
  for (int level : levels) runs.append({2, static_cast<char>(level)});
  return little_endian<uint32_t>({static_cast<uint32_t>(runs.size())}) + runs;
}

// A page of version 1; `raw_bytes` may be what it is not.
inline std::string data_page(int64_t values, std::string_view body, int64_t raw_bytes,
                             int encoding = 0) {
  ThriftStruct data;
  data.integer(1, values).integer(2, encoding).integer(3, 3).integer(4, 3);
  ThriftStruct header;
  header.integer(1, 0).integer(2, raw_bytes).integer(3, static_cast<int64_t>(body.size()));
  return header.inner(5, data).bytes() + std::string(body);
}
inline std::string data_page(int64_t values, std::string_view body) {
  return data_page(values, body, static_cast<int64_t>(body.size()));
}

// A file of one leaf: the elements of its schema below the root, one row group.
inline std::string parquet_file(std::vector<ThriftStruct> elements, int columns, int64_t rows,
                                int64_t values, const std::string& pages, int codec = 0) {
  elements.insert(elements.begin(), group_element("schema", kRequiredField, columns));
  ThriftStruct metadata;
  metadata.integer(4, codec).integer(5, values).integer(6, 0);
  metadata.integer(7, static_cast<int64_t>(pages.size())).integer(9, 4);
  ThriftStruct group;
  group.list(1, {ThriftStruct().integer(2, 0).inner(3, metadata)});
  group.integer(2, static_cast<int64_t>(pages.size())).integer(3, rows);
  ThriftStruct file;
  file.integer(1, 1).list(2, elements).integer(3, rows).list(4, {group});
  const std::string footer = file.bytes();
  return "PAR1" + pages + footer + little_endian<uint32_t>({static_cast<uint32_t>(footer.size())}) +
         "PAR1";
}

}  // namespace tessera
