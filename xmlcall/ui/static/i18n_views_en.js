/* English words of chat, recorded turns and reading anew. */

export const EN_VIEWS = {};
