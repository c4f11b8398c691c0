/* ptx_embedded.cc - the text that nvcc made of frugal_cuda.cu, within the program. FRUGAL_PTX_FILE: its path. */
__asm__(".pushsection .rodata\n"
        ".globl frugal_ptx_text, frugal_ptx_text_end\n"
        "frugal_ptx_text:\n"
        ".incbin \"" FRUGAL_PTX_FILE "\"\n"
        "frugal_ptx_text_end:\n"
        ".byte 0\n"
        ".popsection\n");
