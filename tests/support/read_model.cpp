// Reads `model` of each request as llama.cpp's router does, by the same parser. On stdin each request has a line with
// its length before it; on stdout each has a line: `refused`, `none`, or `model` and the bytes of it in hexadecimal.
#include <cstdio>
#include <iostream>
#include <string>

#include "json.hpp"

int main() {
    for (std::string length; std::getline(std::cin, length);) {
        std::string body(std::stoul(length), '\0');
        std::cin.read(body.data(), static_cast<std::streamsize>(body.size()));
        try {
            const auto request = nlohmann::ordered_json::parse(body);
            const auto model = request.find("model");
            if (model == request.end() || !model->is_string()) {
                std::puts("none");
                continue;
            }
            std::printf("model ");
            for (const unsigned char byte : model->get<std::string>()) std::printf("%02x", byte);
            std::puts("");
        } catch (const nlohmann::json::exception &) {
            std::puts("refused");
        }
        std::fflush(stdout);
    }
}
