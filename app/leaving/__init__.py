"""Why people leave, as far as they like to say: answers that they randomised themselves, counted and not kept."""
